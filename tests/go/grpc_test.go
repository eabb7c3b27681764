// gRPC with Google's library: the server API, and a backend that answers hooks. The numbers of the messages' fields are written here by
// hand. They are the same as in Centrifugo.
package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// raw forwards messages unchanged.
type raw struct{}

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}
func (raw) Name() string { return "proto" }

// field encodes one field of a message: a text, a number, or a message.
func field(number protowire.Number, value any) []byte {
	switch value := value.(type) {
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(value))
	}
	panic("no such kind of field")
}

func message(fields ...[]byte) []byte {
	var all []byte
	for _, field := range fields {
		all = append(all, field...)
	}
	return all
}

// fields reads a message: texts and numbers by the number of their field. Repeated values are joined by commas.
func fields(t *testing.T, data []byte) map[int]string {
	t.Helper()
	found := map[int]string{}
	for len(data) > 0 {
		number, kind, length := protowire.ConsumeTag(data)
		if length < 0 {
			t.Fatalf("no message: %x", data)
		}
		data = data[length:]
		text := ""
		switch kind {
		case protowire.BytesType:
			value, length := protowire.ConsumeBytes(data)
			text, data = string(value), data[length:]
		case protowire.VarintType:
			value, length := protowire.ConsumeVarint(data)
			text, data = fmt.Sprint(value), data[length:]
		case protowire.Fixed64Type:
			value, length := protowire.ConsumeFixed64(data)
			text, data = fmt.Sprint(value), data[length:]
		default:
			t.Fatalf("field %d has a type that no message has", number)
		}
		if before, is := found[int(number)]; is {
			text = before + "," + text
		}
		found[int(number)] = text
	}
	return found
}

func isEqual(t *testing.T, found, expected map[int]string) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("%v instead of %v", found, expected)
	}
}

type apiClient struct {
	t          *testing.T
	connection *grpc.ClientConn
}

func dial(t *testing.T, port int) apiClient {
	t.Helper()
	connection, err := grpc.NewClient(address(port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return apiClient{t, connection}
}

func (c apiClient) try(key, method string, request []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "apikey "+key)
	}
	var answer []byte
	options = append(options, grpc.ForceCodec(raw{}), grpc.WaitForReady(true))
	return answer, c.connection.Invoke(ctx, "/centrifugal.centrifugo.api.CentrifugoApi/"+method, &request, &answer, options...)
}

// result returns field 2 of the answer. The answer must not have an error in field 1.
func (c apiClient) result(method string, request []byte, options ...grpc.CallOption) map[int]string {
	c.t.Helper()
	answer, err := c.try(key, method, request, options...)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	found := fields(c.t, answer)
	if _, is := found[1]; is {
		c.t.Fatalf("%s: %q", method, found[1])
	}
	return fields(c.t, []byte(found[2]))
}

// withGRPC starts a server with gRPC beside HTTP.
func withGRPC(t *testing.T, change func(object)) (port, grpcPort int) {
	t.Helper()
	port, grpcPort = freePort(), freePort()
	config := configuration(port, object{})
	config["grpc_api"] = object{"enabled": true, "address": "127.0.0.1", "port": grpcPort, "key": key}
	change(config)
	server := start(filepath.Join(t.TempDir(), "config.json"), config)
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	return port, grpcPort
}

func TestCallsTheServerAPIByCentrifugosNumbers(t *testing.T) {
	port, grpcPort := withGRPC(t, func(object) {})
	api := dial(t, grpcPort)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	health, err := grpc_health_v1.NewHealthClient(api.connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(health, err)
	}

	client := centrifuge.NewJsonClient("ws://"+address(port)+"/connection/websocket", centrifuge.Config{Token: token(object{"sub": "ann", "info": object{"name": "Ann"}})})
	t.Cleanup(client.Close)
	_, publications := follow(t, client, "room:a", centrifuge.SubscriptionConfig{})
	tags := message(field(1, "league"), field(2, "a"))
	published := message(field(1, "history:a"), field(2, `{"n":1}`), field(5, tags), field(6, "key"), field(7, 1), field(8, 5), field(9, "epoch"))
	first := api.result("Publish", published, grpc.UseCompressor("gzip"))
	if first[1] != "1" || first[2] == "" {
		t.Fatalf("published at %v", first)
	}
	isEqual(t, api.result("Publish", published), first)
	isEqual(t, api.result("Publish", message(field(1, "history:a"), field(3, "eyJuIjoyfQ=="))), map[int]string{1: "2", 2: first[2]})
	isEqual(t, api.result("Publish", message(field(1, "room:a"), field(2, `{"live":1}`), field(4, 1))), map[int]string{})
	if got := string(next(t, publications).Data); got != `{"live":1}` {
		t.Fatal(got)
	}
	responses := api.result("Broadcast", message(field(1, "history:b"), field(1, "none:b"), field(2, `1`)))[1]
	if !strings.Contains(responses, "unknown channel") || !strings.HasPrefix(responses, "\x12\x0c\x08\x01\x12\x08") { // 2: {1: 1, 2: epoch}
		t.Fatalf("%q", responses)
	}

	history := api.result("History", message(field(1, "history:a"), field(2, 10), field(3, message(field(1, 0), field(2, first[2]))), field(4, 0)))
	if history[3] != "2" || history[2] != first[2] {
		t.Fatalf("%v", history)
	}
	oldest := fields(t, []byte(api.result("History", message(field(1, "history:a"), field(2, 1)))[1]))
	if oldest[100] == "" || oldest[101] != first[2] {
		t.Fatalf("%v", oldest)
	}
	delete(oldest, 100)
	delete(oldest, 101)
	isEqual(t, oldest, map[int]string{2: `{"n":1}`, 4: "1", 5: string(tags)})
	isEqual(t, api.result("PresenceStats", field(1, "room:a")), map[int]string{1: "1", 2: "1"})
	entry := fields(t, []byte(api.result("Presence", field(1, "room:a"))[1]))
	info := fields(t, []byte(entry[2]))
	isEqual(t, info, map[int]string{1: "ann", 2: entry[1], 3: `{"name":"Ann"}`})
	channels := api.result("Channels", field(1, "room:*"))[1]
	isEqual(t, fields(t, []byte(channels)), map[int]string{1: "room:a", 2: string(field(1, 1))})
	node := fields(t, []byte(api.result("Info", nil)[1]))
	if node[1] == "" || node[3] == "" || node[4] != "1" || node[5] != "1" || node[6] == "" || node[8] == "" || node[9] == "" || node[10] != "1" {
		t.Fatalf("%v", node)
	}

	batch := message(
		field(1, field(4, message(field(1, "history:c"), field(2, `1`)))), field(1, field(10, field(1, "room:a"))), field(1, field(16, []byte{})), field(2, 1))
	answer, err := api.try(key, "Batch", batch)
	if err != nil {
		t.Fatal(err)
	}
	replies := fields(t, answer)[1]
	if !strings.Contains(replies, "\x52\x04\x08\x01\x10\x01") { // 10: {1: 1, 2: 1}
		t.Fatalf("%q", replies)
	}

	for method, request := range map[string][]byte{
		"Subscribe": message(field(1, "history:s"), field(2, "ann"), field(3, 0), field(4, `{"i":1}`), field(7, `{"d":1}`),
			field(10, message(field(1, field(1, 0))))),
		"Unsubscribe":          message(field(1, "history:s"), field(2, "ann")),
		"Refresh":              message(field(1, "ann"), field(4, int(time.Now().Unix())+600), field(5, `{"name":"Bea"}`)),
		"HistoryRemove":        field(1, "history:a"),
		"BlockUser":            message(field(1, int(time.Now().Unix())+600), field(2, "eve")),
		"UnblockUser":          field(1, "eve"),
		"RevokeToken":          message(field(1, int(time.Now().Unix())+600), field(2, "jti-1")),
		"InvalidateUserTokens": message(field(2, "eve"), field(3, 5)),
		"Disconnect":           message(field(1, "ann"), field(2, message(field(1, 4500), field(2, "over"))), field(4, "none")),
	} {
		isEqual(t, api.result(method, request), map[int]string{})
	}
	answer, err = api.try(key, "RPC", message(field(1, "none"), field(2, `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	why := "method not found: the server has no methods of an application, so rpc always has this error"
	isEqual(t, fields(t, []byte(fields(t, answer)[1])), map[int]string{1: "104", 2: why})
	if _, err := api.try("wrong-key", "Info", nil); status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	if _, err := api.try(key, "DeviceList", nil); status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}

// question is a request to the backend.
type question struct {
	method   string
	metadata metadata.MD
	fields   map[int]string
}

type backend struct {
	port      int
	mutex     sync.Mutex
	questions []question
}

// serveHooks starts a backend. It answers each request with the result of `answer`.
func serveHooks(t *testing.T, answer func(method string, fields map[int]string) ([]byte, error)) *backend {
	t.Helper()
	b := &backend{port: freePort()}
	listener, err := net.Listen("tcp", address(b.port))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		path, _ := grpc.MethodFromServerStream(stream)
		method, is := strings.CutPrefix(path, "/centrifugal.centrifugo.proxy.CentrifugoProxy/")
		if !is {
			return status.Error(codes.Unimplemented, path)
		}
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		sent, _ := metadata.FromIncomingContext(stream.Context())
		if _, is := stream.Context().Deadline(); !is {
			return status.Error(codes.InvalidArgument, "a call has a deadline")
		}
		found := fields(t, request)
		b.mutex.Lock()
		b.questions = append(b.questions, question{method, sent, found})
		b.mutex.Unlock()
		response, err := answer(method, found)
		if err != nil {
			return err
		}
		return stream.SendMsg(&response)
	}))
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return b
}

func (b *backend) asked() []question {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return append([]question{}, b.questions...)
}

// withHooks sends the requests of all hooks to a backend.
func withHooks(config object, port int, more object) {
	proxy := func() object {
		proxy := object{"endpoint": fmt.Sprintf("grpc://%s", address(port)), "timeout": "5s", "include_connection_meta": true, "http_headers": []string{"X-Test"},
			"emulated_headers": []string{"X-Claimed"},
			"grpc":             object{"credentials_key": "x-secret", "credentials_value": "s3cret", "compression": true, "static_metadata": object{"x-static": "yes"}}}
		for name, value := range more {
			proxy[name] = value
		}
		return proxy
	}
	switched := func() object {
		switched := proxy()
		switched["enabled"] = true
		return switched
	}
	config["client"].(object)["proxy"] = object{"connect": switched(), "refresh": switched()}
	config["rpc"] = object{"proxy": proxy(), "without_namespace": object{"proxy_enabled": true}}
	channel := config["channel"].(object)
	channel["proxy"] = object{"subscribe": proxy(), "publish": proxy(), "sub_refresh": proxy()}
	channel["namespaces"] = append(channel["namespaces"].([]object), object{"name": "chat", "history_size": 10, "history_ttl": "60s", "presence": true,
		"allow_history_for_subscriber": true, "allow_presence_for_subscriber": true,
		"subscribe_proxy_enabled": true, "publish_proxy_enabled": true, "sub_refresh_proxy_enabled": true})
}

func text(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

func TestAsksABackendByCentrifugosNumbers(t *testing.T) {
	soon := func() int { return int(time.Now().Unix()) + 8 }
	later := int(time.Now().Unix()) + 600
	b := serveHooks(t, func(method string, _ map[int]string) ([]byte, error) {
		switch method {
		case "Connect":
			caps := message(field(1, "chat:*"), field(2, "sub"), field(2, "pub"), field(2, "hst"), field(2, "prs"), field(3, "wildcard"))
			options := message(field(4, `{"v":1}`), field(2, `{"role":"host"}`), field(6, message(field(1, field(1, 1)))))
			result := message(field(1, "ann"), field(2, soon()), field(3, `{"name":"Ann"}`), field(5, `{"welcome":true}`), field(7, "history:server"),
				field(8, message(field(1, "room:server"), field(2, options))), field(9, `{"tenant":"a"}`), field(10, caps),
				field(11, message(field(1, "tier"), field(2, "gold"))))
			return field(1, result), nil
		case "Refresh":
			return field(1, message(field(2, later), field(3, `{"name":"Bea"}`), field(5, `{"tenant":"b"}`))), nil
		case "Subscribe":
			return field(1, message(field(1, later), field(2, `{"role":"mod"}`), field(4, `{"hi":1}`), field(6, message(field(1, field(1, 1)))))), nil
		case "Publish":
			return field(1, message(field(1, `{"from":"ann"}`), field(4, message(field(1, "lang"), field(2, "de"))), field(5, "m-17"))), nil
		case "RPC":
			return field(1, field(1, `{"price":7}`)), nil
		}
		return nil, status.Error(codes.Unimplemented, method)
	})
	port, grpcPort := withGRPC(t, func(config object) { withHooks(config, b.port, nil) })
	client := centrifuge.NewJsonClient("ws://"+address(port)+"/connection/websocket",
		centrifuge.Config{Data: []byte(`{"lang":"de"}`), Name: "go", Version: "1.2", Header: map[string][]string{"X-Test": {"one"}}})
	t.Cleanup(client.Close)
	connected := make(chan centrifuge.ConnectedEvent, 10)
	client.OnConnected(func(event centrifuge.ConnectedEvent) { connected <- event })
	_, publications := follow(t, client, "chat:1", centrifuge.SubscriptionConfig{Data: []byte(`{"since":5}`)})
	if data := string(next(t, connected).Data); data != `{"welcome":true}` {
		t.Fatal(data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := client.Publish(ctx, "chat:1", []byte(`{"input":"hi"}`)); err != nil {
		t.Fatal(err)
	}
	publication := next(t, publications)
	if string(publication.Data) != `{"from":"ann"}` || publication.Tags["lang"] != "de" {
		t.Fatalf("%+v", publication)
	}
	price, err := client.RPC(ctx, "price", []byte(`{"id":12}`))
	if err != nil || string(price.Data) != `{"price":7}` {
		t.Fatal(string(price.Data), err)
	}
	until(t, "five questions", func() bool { return len(b.asked()) >= 5 })
	api := dial(t, grpcPort)
	entry := fields(t, []byte(api.result("Presence", field(1, "chat:1"))[1]))
	if info := fields(t, []byte(entry[2])); info[1] != "ann" || info[4] != `{"role":"mod"}` {
		t.Fatalf("%v", info)
	}

	labels := string(message(field(1, "tier"), field(2, "gold")))
	for at, expected := range []question{
		{"Connect", nil, map[int]string{2: "websocket", 3: "json", 4: "json", 10: `{"lang":"de"}`, 12: "go", 13: "1.2"}},
		{"Subscribe", nil, map[int]string{2: "websocket", 3: "json", 4: "json", 10: "ann", 11: "chat:1", 13: `{"tenant":"a"}`, 14: `{"since":5}`, 16: labels}},
		{"Publish", nil, map[int]string{2: "websocket", 3: "json", 4: "json", 10: "ann", 11: "chat:1", 12: `{"input":"hi"}`, 14: `{"tenant":"a"}`, 15: labels}},
		{"RPC", nil, map[int]string{2: "websocket", 3: "json", 4: "json", 10: "ann", 11: "price", 12: `{"id":12}`, 14: `{"tenant":"a"}`, 15: labels}},
		{"Refresh", nil, map[int]string{2: "websocket", 3: "json", 4: "json", 10: "ann", 11: `{"tenant":"a"}`, 12: labels}},
	} {
		asked := b.asked()[at]
		if len(asked.fields[1]) != 36 {
			t.Fatalf("%q is not a client", asked.fields[1])
		}
		delete(asked.fields, 1)
		if asked.method != expected.method {
			t.Fatalf("%s instead of %s", asked.method, expected.method)
		}
		isEqual(t, asked.fields, expected.fields)
		for name, value := range map[string]string{"x-test": "one", "x-secret": "s3cret", "x-static": "yes"} {
			if got := asked.metadata.Get(name); len(got) != 1 || got[0] != value {
				t.Fatalf("%s: %q", name, got)
			}
		}
	}
}

func TestABackendRefusesEndsLiesAndLacksMethods(t *testing.T) {
	failing, over := codes.OK, make(chan bool)
	defer close(over)
	var mutex sync.Mutex
	set := func(code codes.Code) { mutex.Lock(); failing = code; mutex.Unlock() }
	b := serveHooks(t, func(method string, asked map[int]string) ([]byte, error) {
		mutex.Lock()
		code := failing
		mutex.Unlock()
		switch {
		case method == "Connect":
			return field(1, field(1, "ann")), nil
		case code != codes.OK:
			return nil, status.Error(code, "what the backend says of ann")
		case asked[11] == "error":
			return message(field(1, field(1, `1`)), field(2, message(field(1, 403), field(2, "no"), field(3, 1)))), nil
		case asked[11] == "end":
			return message(field(2, field(1, 403)), field(3, message(field(1, 4501), field(2, "over")))), nil
		case asked[11] == "bytes":
			return field(1, field(1, `{any bytes`)), nil
		case asked[11] == "code":
			return field(2, field(1, 7)), nil
		case asked[11] == "huge":
			return field(1, field(1, text(strings.Repeat("x", 2<<20)))), nil
		case asked[11] == "slow":
			<-over
			return nil, nil
		case asked[11] == "garbage":
			return []byte{0x0a, 0xff}, nil
		}
		return nil, nil
	})
	port, _ := withGRPC(t, func(config object) { withHooks(config, b.port, object{"binary_encoding": true}) })
	client := centrifuge.NewJsonClient("ws://"+address(port)+"/connection/websocket", centrifuge.Config{ReadTimeout: patience})
	t.Cleanup(client.Close)
	ended := make(chan centrifuge.DisconnectedEvent, 1)
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) { ended <- event })
	if err := client.Connect(); err != nil {
		t.Fatal(err)
	}
	rpc := func(method string) (string, uint32) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		answer, err := client.RPC(ctx, method, []byte(`{"b":1}`))
		if err == nil {
			return string(answer.Data), 0
		}
		if refused, is := err.(*centrifuge.Error); is {
			return "", refused.Code
		}
		t.Fatalf("%s: %v", method, err)
		return "", 0
	}
	for method, expected := range map[string]uint32{"error": 403, "bytes": 0, "code": 100, "huge": 100, "slow": 100, "garbage": 100, "empty": 0} {
		if _, code := rpc(method); code != expected {
			t.Fatalf("%s: %d instead of %d", method, code, expected)
		}
	}
	asked := b.asked()[1]
	if asked.fields[4] != "binary" || asked.fields[12] != "" || asked.fields[13] != "eyJiIjoxfQ==" {
		t.Fatalf("%v", asked.fields)
	}
	for _, code := range []codes.Code{codes.Unimplemented, codes.PermissionDenied, codes.Unavailable, codes.Internal} {
		set(code)
		if _, got := rpc("any"); got != 100 {
			t.Fatalf("%v: %d", code, got)
		}
	}
	// Refusals by the backend itself do not open the breaker. Outages do.
	set(codes.PermissionDenied)
	for range 40 {
		rpc("any")
	}
	before := len(b.asked())
	rpc("any")
	if len(b.asked()) != before+1 {
		t.Fatal("a backend that answers is asked again")
	}
	set(codes.Unavailable)
	for range 120 {
		rpc("any")
	}
	if added := len(b.asked()) - before - 1; added > 110 {
		t.Fatalf("the breaker never opened: %d questions", added)
	}
	set(codes.OK)
	until(t, "a closed breaker", func() bool {
		_, code := rpc("empty")
		return code == 0
	})
	go func() { client.RPC(context.Background(), "end", nil) }()
	if event := next(t, ended); event.Code != 4501 || event.Reason != "over" {
		t.Fatalf("%+v", event)
	}
}
