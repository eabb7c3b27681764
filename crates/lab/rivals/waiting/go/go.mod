module touchline.example/waiting

go 1.19
