// The rival `go` of `touchline-lab http`: net/http on one processor. Prints its address.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
)

func echo(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(response, "<http_test><value>%s</value></http_test>", request.URL.Query().Get("value"))
}

func main() {
	runtime.GOMAXPROCS(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	http.HandleFunc("/", echo)
	log.Fatal(http.Serve(listener, nil))
}
