// The official Go SDK against the real server, in both encodings, with compression and without.
package tests

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const (
	secret = "end-to-end-secret-that-is-long-enough"
	key    = "end-to-end-key"
	// patience is several times as long as a busy machine stands still.
	patience = 120 * time.Second
)

var (
	base   string
	serial atomic.Int64
)

type object = map[string]any

func TestMain(m *testing.M) {
	os.Exit(withServer(m))
}

func withServer(m *testing.M) int {
	port := freePort()
	base = address(port)
	directory, _ := os.MkdirTemp("", "touchline-go-")
	defer os.RemoveAll(directory)
	server := start(filepath.Join(directory, "config.json"), configuration(port, object{}))
	code := m.Run()
	server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		panic(err)
	}
	return code
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// The ports of these tests (CONTRIBUTING.md).
const firstPort, lastPort = 24_200, 25_399

func freePort() int {
	for {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if probe, err := net.Listen("tcp", address(port)); err == nil {
			probe.Close()
			return port
		}
	}
}

// configuration of a server whose namespace "history" has more options.
func configuration(port int, more object) object {
	namespace := func(name string, all ...object) object {
		options := object{"name": name, "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true}
		for _, some := range all {
			maps.Copy(options, some)
		}
		return options
	}
	history := object{"history_size": 100, "history_ttl": "60s", "force_recovery": true, "allow_history_for_subscriber": true, "allow_history_for_anonymous": true}
	state := object{"history_size": 100, "history_ttl": "60s", "force_recovery": true, "allowed_delta_types": []string{"fossil"}}
	room := object{"presence": true, "join_leave": true, "force_push_join_leave": true, "allow_presence_for_subscriber": true, "allow_publish_for_client": true}
	return object{
		"http_server": object{"address": "127.0.0.1", "port": port},
		"http_api":    object{"key": key},
		"client":      object{"token": object{"hmac_secret_key": secret}, "allow_anonymous_connect_without_token": true},
		"websocket":   object{"compression": true, "compression_min_size": 1},
		"channel":     object{"namespaces": []object{namespace("history", history, more), namespace("state", state), namespace("room", room), {"name": "closed"}}},
		"health":      object{"enabled": true},
		"log":         object{"level": "warn"},
		"shutdown":    object{"spread": "100ms", "timeout": "5s"},
	}
}

// start starts the binary and waits until it answers.
func start(file string, config object) *exec.Cmd {
	text, _ := json.Marshal(config)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		panic(err)
	}
	binary := os.Getenv("TOUCHLINE_BIN")
	if binary == "" {
		binary = "../../target/debug/touchline"
	}
	server := exec.Command(binary, "serve", "--config", file)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		panic(err)
	}
	health := fmt.Sprintf("http://%s/health", address(config["http_server"].(object)["port"].(int)))
	if !isTrueInTime(func() bool {
		answer, err := http.Get(health)
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	}) {
		panic("the server does not answer")
	}
	return server
}

// isTrueInTime waits until a condition holds.
func isTrueInTime(condition func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // waits: between two looks.
		if condition() {
			return true
		}
	}
	return false
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !isTrueInTime(condition) {
		t.Fatalf("waited too long for %s", what)
	}
}

func token(claims object) string {
	encode := base64.RawURLEncoding.EncodeToString
	body, _ := json.Marshal(claims)
	head := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(body)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(head))
	return head + "." + encode(mac.Sum(nil))
}

func api(t *testing.T, method string, body object) {
	t.Helper()
	apiOf(t, base, method, body)
}

func apiOf(t *testing.T, base, method string, body object) {
	t.Helper()
	data, _ := json.Marshal(body)
	request, _ := http.NewRequest("POST", "http://"+base+"/api/"+method, bytes.NewReader(data))
	request.Header.Set("X-API-Key", key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != 200 || bytes.Contains(text, []byte(`"error"`)) {
		t.Fatalf("%s: %d %s", method, answer.StatusCode, text)
	}
}

func unique(prefix string) string { return fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), serial.Add(1)) }

// each runs a test in both encodings, one of them compressed.
func each(t *testing.T, run func(t *testing.T, connect func(config centrifuge.Config) *centrifuge.Client)) {
	makers := map[string]func(string, centrifuge.Config) *centrifuge.Client{"json": centrifuge.NewJsonClient, "protobuf, compressed": centrifuge.NewProtobufClient}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			run(t, func(config centrifuge.Config) *centrifuge.Client {
				config.EnableCompression = strings.Contains(name, "compressed")
				config.MinReconnectDelay, config.ReadTimeout = 20*time.Millisecond, patience
				client := make("ws://"+base+"/connection/websocket", config)
				t.Cleanup(client.Close)
				return client
			})
		})
	}
}

func next[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatal("waited too long")
		panic("unreachable")
	}
}

func follow(t *testing.T, client *centrifuge.Client, channel string, config centrifuge.SubscriptionConfig) (*centrifuge.Subscription, chan centrifuge.Publication) {
	t.Helper()
	subscription, err := client.NewSubscription(channel, config)
	if err != nil {
		t.Fatal(err)
	}
	publications, subscribed := make(chan centrifuge.Publication, 100), make(chan bool, 100)
	subscription.OnPublication(func(event centrifuge.PublicationEvent) { publications <- event.Publication })
	subscription.OnSubscribed(func(centrifuge.SubscribedEvent) { subscribed <- true })
	if err := subscription.Subscribe(); err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(); err != nil {
		t.Fatal(err)
	}
	next(t, subscribed)
	return subscription, publications
}

func TestPublishesAndTellsPresence(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		client := connect(centrifuge.Config{Token: token(object{"sub": "ann", "info": object{"name": "Ann"}})})
		subscription, publications := follow(t, client, unique("room:"), centrifuge.SubscriptionConfig{})
		if _, err := subscription.Publish(context.Background(), []byte(`{"hello":"world"}`)); err != nil {
			t.Fatal(err)
		}
		publication := next(t, publications)
		if string(publication.Data) != `{"hello":"world"}` || publication.Info.User != "ann" || string(publication.Info.ConnInfo) != `{"name":"Ann"}` {
			t.Fatalf("%s %+v", publication.Data, publication.Info)
		}
		presence, err := subscription.Presence(context.Background())
		if err != nil || len(presence.Clients) != 1 {
			t.Fatal(presence, err)
		}
		stats, err := subscription.PresenceStats(context.Background())
		if err != nil || stats.NumClients != 1 || stats.NumUsers != 1 {
			t.Fatal(stats, err)
		}
	})
}

func TestRecoversExactlyWhatItMissed(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		user, channel := unique("u"), unique("history:")
		client := connect(centrifuge.Config{Token: token(object{"sub": user})})
		connecting := make(chan uint32, 10)
		subscription, publications := follow(t, client, channel, centrifuge.SubscriptionConfig{})
		client.OnConnecting(func(event centrifuge.ConnectingEvent) { connecting <- event.Code })
		api(t, "disconnect", object{"user": user, "disconnect": object{"code": 4100, "reason": "elsewhere"}})
		if code := next(t, connecting); code != 4100 {
			t.Fatal(code)
		}
		for n := 1; n <= 5; n++ {
			api(t, "publish", object{"channel": channel, "data": n})
		}
		for n := 1; n <= 5; n++ {
			if got := string(next(t, publications).Data); got != fmt.Sprint(n) {
				t.Fatalf("%s instead of %d", got, n)
			}
		}
		history, err := subscription.History(context.Background(), centrifuge.WithHistoryLimit(10))
		if err != nil || len(history.Publications) != 5 || history.Offset != 5 {
			t.Fatal(history, err)
		}
	})
}

func TestFollowsAStateByItsChanges(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		channel := unique("state:")
		_, publications := follow(t, connect(centrifuge.Config{}), channel, centrifuge.SubscriptionConfig{Delta: centrifuge.DeltaTypeFossil})
		state := func(n int) object {
			return object{"team": "Łódź", "text": strings.Repeat("it goes on and on, ", 30), "goals": n}
		}
		for n := 1; n <= 4; n++ {
			api(t, "publish", object{"channel": channel, "data": state(n)})
		}
		for n := 1; n <= 4; n++ {
			wanted, _ := json.Marshal(state(n))
			if got := next(t, publications).Data; !bytes.Equal(got, wanted) {
				t.Fatalf("%s instead of %s", got, wanted)
			}
		}
	})
}

func TestHasTheServerSideSubscriptionsOfItsToken(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		channel := unique("history:")
		client := connect(centrifuge.Config{Token: token(object{"sub": "ann", "channels": []string{channel}})})
		subscribed, publications := make(chan string, 10), make(chan string, 10)
		client.OnSubscribed(func(event centrifuge.ServerSubscribedEvent) { subscribed <- event.Channel })
		client.OnPublication(func(event centrifuge.ServerPublicationEvent) { publications <- string(event.Data) })
		if err := client.Connect(); err != nil {
			t.Fatal(err)
		}
		if got := next(t, subscribed); got != channel {
			t.Fatal(got)
		}
		api(t, "publish", object{"channel": channel, "data": "hello"})
		if got := next(t, publications); got != `"hello"` {
			t.Fatal(got)
		}
	})
}

func TestRefreshesItsToken(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		var asked, connecting atomic.Int32
		client := connect(centrifuge.Config{GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
			lasting := time.Hour
			if asked.Add(1) == 1 {
				lasting = 5 * time.Second
			}
			return token(object{"sub": "ann", "exp": time.Now().Add(lasting).Unix()}), nil
		}})
		client.OnConnecting(func(centrifuge.ConnectingEvent) { connecting.Add(1) })
		if err := client.Connect(); err != nil {
			t.Fatal(err)
		}
		until(t, "another token", func() bool { return asked.Load() >= 2 })
		client.RPC(context.Background(), "nothing", nil) // This answer comes after the answer about the token.
		// The client keeps its one connection. A client that the server disconnects would also ask for a token, and reconnect.
		if client.State() != centrifuge.StateConnected || connecting.Load() != 1 {
			t.Fatal(asked.Load(), client.State(), connecting.Load())
		}
	})
}

func TestErrorsAndDisconnectsHaveTheirNumbers(t *testing.T) {
	each(t, func(t *testing.T, connect func(centrifuge.Config) *centrifuge.Client) {
		user := unique("u")
		client := connect(centrifuge.Config{Token: token(object{"sub": user})})
		disconnected, unsubscribed := make(chan uint32, 10), make(chan uint32, 10)
		client.OnDisconnected(func(event centrifuge.DisconnectedEvent) { disconnected <- event.Code })
		subscription, _ := client.NewSubscription(unique("closed:"))
		subscription.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) { unsubscribed <- event.Code })
		subscription.Subscribe()
		if err := client.Connect(); err != nil {
			t.Fatal(err)
		}
		if code := next(t, unsubscribed); code != 103 {
			t.Fatal(code)
		}
		_, err := client.RPC(context.Background(), "nothing", []byte("{}"))
		if refused, ok := err.(*centrifuge.Error); !ok || refused.Code != 108 {
			t.Fatal(err)
		}
		api(t, "disconnect", object{"user": user})
		if code := next(t, disconnected); code != 3503 {
			t.Fatal(code)
		}
		forged := connect(centrifuge.Config{Token: "no.such.token"})
		forged.OnDisconnected(func(event centrifuge.DisconnectedEvent) { disconnected <- event.Code })
		forged.Connect()
		if code := next(t, disconnected); code != 3500 {
			t.Fatal(code)
		}
	})
}

// Each start of a node is a run of its store, and the epoch names the run: a complete recovery after a restart has another epoch.
func TestRecoversFromOneRunOfTheStoreToTheNext(t *testing.T) {
	directory, port := t.TempDir(), freePort()
	config := configuration(port, object{"durable": true})
	config["store"] = object{"primary": object{"url": "sqlite:" + filepath.Join(directory, "primary.db")}}
	server := start(filepath.Join(directory, "config.json"), config)
	end := func() {
		server.Process.Kill()
		server.Wait()
	}
	t.Cleanup(func() { end() })
	client := centrifuge.NewProtobufClient("ws://"+address(port)+"/connection/websocket", centrifuge.Config{MinReconnectDelay: 20 * time.Millisecond, MaxReconnectDelay: 200 * time.Millisecond})
	t.Cleanup(client.Close)
	follower := recoveries(t, client, "history:kept")
	epochs := map[string]bool{next(t, follower.subscribed).StreamPosition.Epoch: true}
	for n := 1; n <= 3; n++ {
		apiOf(t, address(port), "publish", object{"channel": "history:kept", "data": n})
		if got := string(next(t, follower.publications).Data); got != fmt.Sprint(n) {
			t.Fatalf("%s instead of %d", got, n)
		}
		end()
		server = start(filepath.Join(directory, "config.json"), config)
		subscribed := next(t, follower.subscribed)
		if !subscribed.WasRecovering || !subscribed.Recovered {
			t.Fatalf("run %d: %+v", n, subscribed)
		}
		epochs[subscribed.StreamPosition.Epoch] = true
	}
	if len(epochs) != 4 || len(follower.publications) != 0 {
		t.Fatal(epochs, len(follower.publications))
	}
}

type follower struct {
	subscribed   chan centrifuge.SubscribedEvent
	publications chan centrifuge.Publication
}

// recoveries subscribes, and reports each subscription and publication.
func recoveries(t *testing.T, client *centrifuge.Client, channel string) follower {
	t.Helper()
	subscription, err := client.NewSubscription(channel, centrifuge.SubscriptionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	heard := follower{make(chan centrifuge.SubscribedEvent, 100), make(chan centrifuge.Publication, 100)}
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) { heard.subscribed <- event })
	subscription.OnPublication(func(event centrifuge.PublicationEvent) { heard.publications <- event.Publication })
	if err := subscription.Subscribe(); err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(); err != nil {
		t.Fatal(err)
	}
	return heard
}
