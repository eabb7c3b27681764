// Centrifugo's server library for Go against the real server: every method of the library, alone and in a pipe.
package tests

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/centrifugal/centrifuge-go"
	"github.com/centrifugal/gocent/v3"
)

func library() *gocent.Client {
	return gocent.New(gocent.Config{Addr: "http://" + base + "/api", Key: key})
}

// user is connected and subscribed to a channel until the test ends.
func connectedUser(t *testing.T, user, channel string) {
	client := centrifuge.NewJsonClient("ws://"+base+"/connection/websocket", centrifuge.Config{Token: token(object{"sub": user})})
	t.Cleanup(client.Close)
	follow(t, client, channel, centrifuge.SubscriptionConfig{})
}

func TestServerLibraryCallsEveryMethod(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, history, room, user := library(), unique("history:"), unique("room:"), unique("user")
	tried := map[string]bool{"Pipe": true, "SendPipe": true, "SetHTTPClient": true}
	must := func(method string, err error) {
		t.Helper()
		tried[method] = true
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	published, err := c.Publish(ctx, history, []byte(`{"n":1}`))
	must("Publish", err)
	if published.Offset != 1 || published.Epoch == "" {
		t.Fatalf("published at %+v", published)
	}
	sent, err := c.Broadcast(ctx, []string{history, "unknown:x"}, []byte("2"), gocent.WithSkipHistory(false))
	must("Broadcast", err)
	if sent.Responses[0].Result.Offset != 2 || sent.Responses[1].Error.Code != 102 {
		t.Fatalf("broadcast: %+v", sent)
	}
	kept, err := c.History(ctx, history, gocent.WithLimit(gocent.NoLimit))
	must("History", err)
	if len(kept.Publications) != 2 || string(kept.Publications[0].Data) != `{"n":1}` {
		t.Fatalf("kept: %+v", kept)
	}
	must("HistoryRemove", c.HistoryRemove(ctx, history))
	if kept, err := c.History(ctx, history, gocent.WithLimit(gocent.NoLimit)); err != nil || len(kept.Publications) != 0 || kept.Offset != 2 {
		t.Fatalf("kept after the removal: %+v %v", kept, err)
	}
	connectedUser(t, user, room)
	present, err := c.Presence(ctx, room)
	must("Presence", err)
	users := []string{}
	for _, client := range present.Presence {
		users = append(users, client.User)
	}
	if !slices.Equal(users, []string{user}) {
		t.Fatalf("present: %+v", present)
	}
	counted, err := c.PresenceStats(ctx, room)
	must("PresenceStats", err)
	if counted.NumClients != 1 || counted.NumUsers != 1 {
		t.Fatalf("counted: %+v", counted)
	}
	must("Subscribe", c.Subscribe(ctx, history, user, gocent.WithSubscribeData(json.RawMessage(`{}`))))
	listed, err := c.Channels(ctx, gocent.WithPattern("{"+room+","+history+"}"))
	must("Channels", err)
	if len(listed.Channels) != 2 {
		t.Fatalf("listed: %+v", listed)
	}
	must("Unsubscribe", c.Unsubscribe(ctx, history, user))
	if listed, err := c.Channels(ctx, gocent.WithPattern("{"+room+","+history+"}")); err != nil || len(listed.Channels) != 1 {
		t.Fatalf("listed after the end of a subscription: %+v %v", listed, err)
	}
	info, err := c.Info(ctx)
	must("Info", err)
	if len(info.Nodes) != 1 || info.Nodes[0].Name == "" || info.Nodes[0].NumClients < 1 {
		t.Fatalf("info: %+v", info)
	}
	must("Disconnect", c.Disconnect(ctx, user))
	until(t, "the end of the connection", func() bool {
		counted, err = c.PresenceStats(ctx, room)
		return err == nil && counted.NumClients == 0
	})
	all := reflect.TypeOf(c)
	for index := 0; index < all.NumMethod(); index++ {
		if name := all.Method(index).Name; !tried[name] {
			t.Errorf("the test did not call %s", name)
		}
	}
}

func TestServerLibrarySendsAPipe(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, channel := library(), unique("history:")
	pipe := c.Pipe()
	for _, err := range []error{
		pipe.AddPublish(channel, []byte("1")),
		pipe.AddBroadcast([]string{channel}, []byte("2")),
		pipe.AddPublish("unknown:x", []byte("3")),
		pipe.AddHistory(channel, gocent.WithLimit(10)),
		pipe.AddPresence("room:a"),
		pipe.AddPresenceStats("room:a"),
		pipe.AddSubscribe("room:a", "nobody"),
		pipe.AddUnsubscribe("room:a", "nobody"),
		pipe.AddDisconnect("nobody"),
		pipe.AddChannels(),
		pipe.AddInfo(),
		pipe.AddHistoryRemove(channel),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	replies, err := c.SendPipe(ctx, pipe)
	if err != nil {
		t.Fatal(err)
	}
	if len(replies) != 12 {
		t.Fatalf("%d replies", len(replies))
	}
	for index, reply := range replies {
		if isRefused := reply.Error != nil; isRefused != (index == 2) {
			t.Errorf("reply %d: %+v %s", index, reply.Error, reply.Result)
		}
	}
	var kept gocent.HistoryResult
	if err := json.Unmarshal(replies[3].Result, &kept); err != nil || len(kept.Publications) != 2 {
		t.Fatalf("kept: %s (%v)", replies[3].Result, err)
	}
	if !strings.Contains(string(replies[10].Result), `"name"`) {
		t.Fatalf("info: %s", replies[10].Result)
	}
	if kept, err := c.History(ctx, channel, gocent.WithLimit(10)); err != nil || len(kept.Publications) != 0 || kept.Offset != 2 {
		t.Fatalf("kept after the removal: %+v %v", kept, err)
	}
}
