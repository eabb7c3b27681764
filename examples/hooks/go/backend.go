// The backend of a small chat: it answers the six hooks of the server. Go 1.22 or newer, no modules.
//
// Usage: go run backend.go [PORT] [SECONDS]: after so many seconds the server asks again about a connection or a subscription.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A question has the fields of all hooks; data is what the client has sent, any JSON.
type question struct {
	User    string          `json:"user"`
	Channel string          `json:"channel"`
	Method  string          `json:"method"`
	Data    json.RawMessage `json:"data"`
}

type object map[string]any

var (
	lifetime = int64(300)
	lock     sync.Mutex
	sessions = map[string]string{"ada-secret": "ada", "bob-secret": "bob", "cid-secret": "cid"}
	names    = map[string]string{"ada": "Ada", "bob": "Bob", "cid": "Cid"}
	members  = map[string]map[string]bool{"chat:team": {"ada": true, "bob": true, "cid": true}, "chat:board": {"ada": true}}
	prices   = map[string]string{"tea": "2.40", "cake": "3.10"}
	badWords = regexp.MustCompile(`(?i)\bspam\b`)
)

func allow(result object) object { return object{"result": result} }
func refuse(code int, message string) object {
	return object{"error": object{"code": code, "message": message}}
}
func end(code int, reason string) object {
	return object{"disconnect": object{"code": code, "reason": reason}}
}
func soon() int64                               { return time.Now().Unix() + lifetime }
func isMember(user string, channel string) bool { return members[channel][user] }

// field is a text in what the client has sent; it is empty if there is none.
func field(data json.RawMessage, name string) string {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields[name], &text) != nil {
		return ""
	}
	return text
}

// secretOf is the secret of the session: a cookie of the client's request, or what a client without cookies has sent
// when it connected.
func secretOf(request *http.Request) string {
	if cookie, err := request.Cookie("sid"); err == nil {
		return cookie.Value
	}
	secret, _ := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	return secret
}

func connect(_ question, request *http.Request) object {
	user, isKnown := sessions[secretOf(request)]
	if !isKnown {
		return refuse(401, "log in first")
	}
	rooms := []string{}
	for channel := range members {
		if isMember(user, channel) {
			rooms = append(rooms, channel)
		}
	}
	info, data := object{"name": names[user]}, object{"rooms": rooms}
	return allow(object{"user": user, "expire_at": soon(), "info": info, "data": data, "channels": []string{"news"}})
}

func refresh(_ question, request *http.Request) object {
	if _, isKnown := sessions[secretOf(request)]; !isKnown {
		return allow(object{"expired": true})
	}
	return allow(object{"expire_at": soon()})
}

func subscribe(asked question, _ *http.Request) object {
	if !isMember(asked.User, asked.Channel) {
		return refuse(403, "you are not a member")
	}
	return allow(object{"expire_at": soon()})
}

func subRefresh(asked question, _ *http.Request) object {
	if !isMember(asked.User, asked.Channel) {
		return allow(object{"expired": true})
	}
	return allow(object{"expire_at": soon()})
}

func publish(asked question, _ *http.Request) object {
	text := field(asked.Data, "text")
	switch {
	// The hook alone decides who may publish: the node checks no other right of the publisher.
	case !isMember(asked.User, asked.Channel):
		return refuse(403, "you are not a member")
	case text == "":
		return refuse(400, "expected a text")
	case badWords.MatchString(text):
		return refuse(422, "mind your words")
	}
	return allow(object{"data": object{"text": text, "author": names[asked.User]}})
}

func rpc(asked question, request *http.Request) object {
	switch asked.Method {
	case "price":
		price, isSold := prices[field(asked.Data, "of")]
		if !isSold {
			return refuse(404, "not sold here")
		}
		return allow(object{"data": object{"price": price}})
	case "leave":
		channel := field(asked.Data, "channel")
		if !isMember(asked.User, channel) {
			return refuse(403, "you are not a member")
		}
		delete(members[channel], asked.User)
		return allow(object{})
	case "logout":
		delete(sessions, secretOf(request))
		return end(4501, "logged out") // 4500 to 4999: the client does not come back.
	case "reload":
		return end(4100, "something has changed") // 4000 to 4499: the client comes back.
	}
	return refuse(404, "no such method")
}

// answer makes a handler of a hook. A question that cannot be read is a fault, not a refusal: the client gets error 100.
func answer(hook func(question, *http.Request) object) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		var asked question
		if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
			http.Error(response, "the question is not JSON", http.StatusInternalServerError)
			return
		}
		lock.Lock()
		said := hook(asked, request)
		lock.Unlock()
		response.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(response).Encode(said); err != nil {
			log.Print(err)
		}
	}
}

func main() {
	port := "3001"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	if len(os.Args) > 2 {
		seconds, err := strconv.ParseInt(os.Args[2], 10, 64)
		if err != nil {
			log.Fatal(err)
		}
		lifetime = seconds
	}
	for path, hook := range map[string]func(question, *http.Request) object{
		"/connect": connect, "/refresh": refresh, "/subscribe": subscribe,
		"/publish": publish, "/sub_refresh": subRefresh, "/rpc": rpc,
	} {
		http.HandleFunc("POST "+path, answer(hook))
	}
	fmt.Println("hooks are answered on port", port)
	// Only the server may ask: any program that reaches this port can speak for any user.
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
