module touchline.example/echo

go 1.19
