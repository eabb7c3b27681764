// Runs of a store with the official Go SDK: each start of a node is a run, and the epoch names the run.
package tests

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

func TestRecoversFromOneRunOfTheStoreToTheNext(t *testing.T) {
	makers := map[string]func(string, centrifuge.Config) *centrifuge.Client{"json": centrifuge.NewJsonClient, "protobuf": centrifuge.NewProtobufClient}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			directory, port := t.TempDir(), freePort()
			config := configuration(port, object{"durable": true})
			config["store"] = object{"primary": object{"url": "sqlite:" + filepath.Join(directory, "primary.db")}}
			server := start(filepath.Join(directory, "config.json"), config)
			end := func() {
				server.Process.Kill()
				server.Wait()
			}
			t.Cleanup(func() { end() })
			client := make("ws://"+address(port)+"/connection/websocket", centrifuge.Config{MinReconnectDelay: 20 * time.Millisecond, MaxReconnectDelay: 200 * time.Millisecond})
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
		})
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
