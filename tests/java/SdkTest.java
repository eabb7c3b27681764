// The official Java SDK (Protobuf over WebSocket) against the real server. Java runs this source file with the SDK's jars on the class
// path.
import io.github.centrifugal.centrifuge.*;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class SdkTest {
    static final String SECRET = "end-to-end-secret-that-is-long-enough";
    static final String KEY = "end-to-end-key";
    /** Seconds: several times as long as a busy machine stands still. */
    static final int PATIENCE = 120;
    /** The ports of these tests (CONTRIBUTING.md). */
    static final int FIRST_PORT = 25_400, LAST_PORT = 25_999;
    static final HttpClient HTTP = HttpClient.newHttpClient();
    static int port;
    static int serial;

    interface Test { void run() throws Throwable; }

    public static void main(String[] words) throws Exception {
        port = freePort();
        Process server = start(Files.createTempFile("touchline-java-", ".json"), "");
        Map<String, Test> tests = new LinkedHashMap<>();
        tests.put("publishes and tells presence", SdkTest::publishesAndTellsPresence);
        tests.put("recovers exactly what it missed", SdkTest::recoversExactlyWhatItMissed);
        tests.put("has the server-side subscriptions of its token", SdkTest::hasTheSubscriptionsOfItsToken);
        tests.put("refreshes its token", SdkTest::refreshesItsToken);
        tests.put("errors and disconnects have their numbers", SdkTest::errorsAndDisconnectsHaveTheirNumbers);
        tests.put("recovers from one run of the store to the next", SdkTest::recoversFromOneRunToTheNext);
        tests.put("runs the block for JUnit of the guide to tests", SdkTest::runsTheBlockForJunit);
        int passed = 0, failed = 0;
        for (Map.Entry<String, Test> test : tests.entrySet()) {
            try {
                test.getValue().run();
                passed++;
                System.out.println("ok " + test.getKey());
            } catch (Throwable error) {
                failed++;
                System.out.println("not ok " + test.getKey());
                error.printStackTrace(System.out);
            }
        }
        server.destroy();
        if (!server.waitFor(PATIENCE, TimeUnit.SECONDS) || server.exitValue() != 0) {
            failed++;
            System.out.println("not ok: the server did not stop in order");
        }
        System.out.printf("%d passed, %d failed%n", passed, failed);
        System.exit(failed == 0 ? 0 : 1);
    }

    static void publishesAndTellsPresence() throws Throwable {
        try (Fan fan = new Fan(token("{\"sub\":\"ann\",\"info\":{\"name\":\"Ann\"}}"))) {
            Subscription subscription = fan.follow(unique("room:"));
            ask(done -> subscription.publish("{\"hello\":\"world\"}".getBytes(), castTo(done)));
            PublicationEvent publication = next(fan.publications);
            same("{\"hello\":\"world\"}", text(publication.getData()));
            same("ann", publication.getInfo().getUser());
            same("{\"name\":\"Ann\"}", text(publication.getInfo().getConnInfo()));
            PresenceResult presence = (PresenceResult) ask(done -> subscription.presence(castTo(done)));
            same(1, presence.getClients().size());
            PresenceStatsResult stats = (PresenceStatsResult) ask(done -> subscription.presenceStats(castTo(done)));
            same(List.of(1, 1), List.of(stats.getNumClients(), stats.getNumUsers()));
        }
    }

    static void recoversExactlyWhatItMissed() throws Throwable {
        String user = unique("u"), channel = unique("history:");
        try (Fan fan = new Fan(token("{\"sub\":\"" + user + "\"}"))) {
            Subscription subscription = fan.follow(channel);
            fan.connecting.clear();
            api("disconnect", "{\"user\":\"" + user + "\",\"disconnect\":{\"code\":4100,\"reason\":\"elsewhere\"}}");
            same(4100, next(fan.connecting));
            for (int n = 1; n <= 5; n++) api("publish", "{\"channel\":\"" + channel + "\",\"data\":" + n + "}");
            for (int n = 1; n <= 5; n++) same("" + n, text(next(fan.publications).getData()));
            HistoryOptions all = new HistoryOptions.Builder().withLimit(10).build();
            HistoryResult history = (HistoryResult) ask(done -> subscription.history(all, castTo(done)));
            same(List.of(5, 5L), List.of(history.getPublications().size(), history.getOffset()));
        }
    }

    static void hasTheSubscriptionsOfItsToken() throws Throwable {
        String channel = unique("history:");
        try (Fan fan = new Fan(token("{\"sub\":\"ann\",\"channels\":[\"" + channel + "\"]}"))) {
            fan.client.connect();
            same(channel, next(fan.serverSubscribed));
            api("publish", "{\"channel\":\"" + channel + "\",\"data\":\"hello\",\"tags\":{\"kind\":\"goal\"}}");
            ServerPublicationEvent publication = next(fan.serverPublications);
            same("\"hello\"", text(publication.getData()));
            same(Map.of("kind", "goal"), publication.getTags());
        }
    }

    static void refreshesItsToken() throws Throwable {
        AtomicInteger asked = new AtomicInteger();
        Options options = new Options();
        options.setTokenGetter(new ConnectionTokenGetter() {
            @Override public void getConnectionToken(ConnectionTokenEvent event, TokenCallback callback) {
                long lasting = asked.incrementAndGet() == 1 ? 5 : 3600;
                callback.Done(null, token("{\"sub\":\"ann\",\"exp\":" + (System.currentTimeMillis() / 1000 + lasting) + "}"));
            }
        });
        try (Fan fan = new Fan(options)) {
            fan.client.connect();
            until(() -> asked.get() >= 2);
            // This answer comes after the answer about the token.
            same(108, refusal(() -> ask(done -> fan.client.rpc("nothing", "{}".getBytes(), castTo(done)))));
            // The client keeps its one connection. A client that the server disconnects would also ask for a token, and reconnect.
            same(List.of(ClientState.CONNECTED, 1), List.of(fan.client.getState(), fan.connecting.size()));
        }
    }

    static void errorsAndDisconnectsHaveTheirNumbers() throws Throwable {
        String user = unique("u");
        try (Fan fan = new Fan(token("{\"sub\":\"" + user + "\"}")); Fan forger = new Fan("no.such.token")) {
            fan.subscribe(unique("closed:"));
            fan.client.connect();
            same(103, next(fan.unsubscribed));
            same(108, refusal(() -> ask(done -> fan.client.rpc("nothing", "{}".getBytes(), castTo(done)))));
            api("disconnect", "{\"user\":\"" + user + "\"}");
            same(3503, next(fan.disconnected));
            forger.client.connect();
            same(3500, next(forger.disconnected));
        }
    }

    /** Each start of a node is a run, and the epoch names the run: a complete recovery after a restart returns another epoch. */
    static void recoversFromOneRunToTheNext() throws Throwable {
        int before = port;
        port = freePort();
        Path directory = Files.createTempDirectory("touchline-java-");
        Path file = directory.resolve("config.json"), database = directory.resolve("primary.db");
        Process server = start(file, database.toString());
        try (Fan fan = new Fan(token("{\"sub\":\"ann\"}"))) {
            fan.follow("history:kept");
            // The SDK does not expose the epoch, but the answer to a publication has it too.
            Set<String> epochs = new HashSet<>();
            for (int n = 1; n <= 3; n++) {
                String answer = api("publish", "{\"channel\":\"history:kept\",\"data\":" + n + "}");
                epochs.add(answer.replaceFirst(".*\"epoch\":\"([^\"]+)\".*", "$1"));
                same("" + n, text(next(fan.publications).getData()));
                server.destroyForcibly().waitFor();
                server = start(file, database.toString());
                next(fan.subscribed);
                same(List.of(true, true), List.of(fan.last.wasRecovering(), fan.last.getRecovered()));
            }
            same(List.of(3, 0), List.of(epochs.size(), fan.publications.size()));
        } finally {
            server.destroyForcibly().waitFor();
            port = before;
        }
    }

    /** A client, and its events. */
    static class Fan implements AutoCloseable {
        final BlockingQueue<PublicationEvent> publications = new ArrayBlockingQueue<>(100);
        final BlockingQueue<ServerPublicationEvent> serverPublications = new ArrayBlockingQueue<>(100);
        final BlockingQueue<String> serverSubscribed = new ArrayBlockingQueue<>(100);
        final BlockingQueue<Integer> connecting = new ArrayBlockingQueue<>(100), disconnected = new ArrayBlockingQueue<>(100);
        final BlockingQueue<Integer> unsubscribed = new ArrayBlockingQueue<>(100);
        final BlockingQueue<Boolean> subscribed = new ArrayBlockingQueue<>(100);
        final Client client;
        volatile SubscribedEvent last;

        Fan(String token) { this(withToken(token)); }

        Fan(Options options) {
            options.setMinReconnectDelay(20);
            options.setTimeout(PATIENCE * 1000);
            client = new Client("ws://127.0.0.1:" + port + "/connection/websocket", options, new EventListener() {
                @Override public void onConnecting(Client client, ConnectingEvent event) { connecting.add(event.getCode()); }
                @Override public void onDisconnected(Client client, DisconnectedEvent event) { disconnected.add(event.getCode()); }
                @Override public void onSubscribed(Client client, ServerSubscribedEvent event) { serverSubscribed.add(event.getChannel()); }
                @Override public void onPublication(Client client, ServerPublicationEvent event) { serverPublications.add(event); }
            });
        }

        static Options withToken(String token) {
            Options options = new Options();
            options.setToken(token);
            return options;
        }

        Subscription subscribe(String channel) throws Exception {
            Subscription subscription = client.newSubscription(channel, new SubscriptionEventListener() {
                @Override public void onPublication(Subscription subscription, PublicationEvent event) { publications.add(event); }
                @Override public void onSubscribed(Subscription subscription, SubscribedEvent event) {
                    last = event;
                    subscribed.add(true);
                }
                @Override public void onUnsubscribed(Subscription subscription, UnsubscribedEvent event) { unsubscribed.add(event.getCode()); }
            });
            subscription.subscribe();
            return subscription;
        }

        Subscription follow(String channel) throws Exception {
            Subscription subscription = subscribe(channel);
            client.connect();
            next(subscribed);
            return subscription;
        }

        @Override public void close() throws Exception { client.close(1000); }
    }

    /** The block for JUnit in the guide to tests of programs is compiled and run as it is. */
    static void runsTheBlockForJunit() throws Throwable {
        String section = Files.readString(Path.of("docs/guides/testing.md")).split("\n## JUnit\n")[1].split("\n## ")[0];
        String block = section.split("```java\n")[1].split("```")[0];
        Path directory = Files.createTempDirectory("touchline-guide-");
        Path source = Files.writeString(directory.resolve("LiveTest.java"), block), name = directory.resolve("touchline");
        Files.createSymbolicLink(name, Path.of(Objects.requireNonNullElse(System.getenv("TOUCHLINE_BIN"), "target/debug/touchline")).toAbsolutePath());
        String path = System.getProperty("java.class.path"), tools = System.getProperty("java.home") + "/bin/";
        String said = run(directory, tools + "javac", "-cp", path, "-d", directory.toString(), source.toString());
        said += run(directory, tools + "java", "-cp", path + ":" + directory, "org.junit.platform.console.ConsoleLauncher", "execute", "--select-class", "LiveTest");
        if (!said.contains("1 tests successful")) throw new AssertionError(said);
        for (String file : directory.toFile().list()) Files.delete(directory.resolve(file));
        Files.delete(directory);
    }

    /** Runs a program that finds the server in a directory. Returns its output. */
    static String run(Path directory, String... words) throws Exception {
        ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
        builder.environment().merge("PATH", directory.toString(), (path, first) -> first + ":" + path);
        Process program = builder.start();
        String said = new String(program.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (program.waitFor() != 0) throw new AssertionError(said);
        return said;
    }

    static int freePort() throws Exception {
        while (true) {
            int port = java.util.concurrent.ThreadLocalRandom.current().nextInt(FIRST_PORT, LAST_PORT + 1);
            try (ServerSocket probe = new ServerSocket(port)) { return port; } catch (java.net.BindException taken) { /* another one */ }
        }
    }

    /** Starts the binary at {@code port} and waits until it answers. With a database, the namespace "history" is durable. */
    static Process start(Path file, String database) throws Exception {
        String open = "\"allow_subscribe_for_client\":true,\"allow_subscribe_for_anonymous\":true";
        String config = "{\"http_server\":{\"address\":\"127.0.0.1\",\"port\":" + port + "},\"http_api\":{\"key\":\"" + KEY + "\"},"
            + "\"client\":{\"token\":{\"hmac_secret_key\":\"" + SECRET + "\"}},\"channel\":{\"namespaces\":["
            + "{\"name\":\"history\"," + open + ",\"history_size\":100,\"history_ttl\":\"60s\",\"force_recovery\":true,\"allow_history_for_subscriber\":true" + (database.isEmpty() ? "" : ",\"durable\":true") + "},"
            + "{\"name\":\"room\"," + open + ",\"presence\":true,\"join_leave\":true,\"force_push_join_leave\":true,\"allow_presence_for_subscriber\":true,\"allow_publish_for_client\":true},"
            + "{\"name\":\"closed\"}]},\"health\":{\"enabled\":true},\"log\":{\"level\":\"warn\"},\"shutdown\":{\"spread\":\"100ms\",\"timeout\":\"5s\"}"
            + (database.isEmpty() ? "}" : ",\"store\":{\"primary\":{\"url\":\"sqlite:" + database + "\"}}}");
        file.toFile().deleteOnExit();
        Files.writeString(file, config);
        String binary = Objects.requireNonNullElse(System.getenv("TOUCHLINE_BIN"), "target/debug/touchline");
        Process server = new ProcessBuilder(binary, "serve", "--config", file.toString()).inheritIO().start();
        until(() -> {
            if (!server.isAlive()) throw new AssertionError("the server ended");
            try {
                HTTP.send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/health")).build(), HttpResponse.BodyHandlers.discarding());
                return true;
            } catch (java.io.IOException notYet) {
                return false;
            }
        });
        return server;
    }

    static void until(java.util.concurrent.Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
        while (!condition.call()) {
            if (System.nanoTime() > end) throw new AssertionError("waited too long");
            Thread.sleep(20); // waits: between two looks.
        }
    }

    /** The code of the error of a call. */
    static int refusal(Test call) throws Throwable {
        try {
            call.run();
        } catch (ReplyError error) {
            return error.getCode();
        }
        throw new AssertionError("the call was not refused");
    }

    static String api(String method, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/api/" + method))
            .header("X-API-Key", KEY).POST(HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200 || answer.body().contains("\"error\"")) throw new AssertionError(method + ": " + answer.body());
        return answer.body();
    }

    static String token(String claims) {
        try {
            Base64.Encoder base64 = Base64.getUrlEncoder().withoutPadding();
            String head = base64.encodeToString("{\"alg\":\"HS256\",\"typ\":\"JWT\"}".getBytes()) + "." + base64.encodeToString(claims.getBytes(StandardCharsets.UTF_8));
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(SECRET.getBytes(), "HmacSHA256"));
            return head + "." + base64.encodeToString(mac.doFinal(head.getBytes()));
        } catch (java.security.GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits for the value that a callback receives. */
    static Object ask(Consumer<ResultCallback<Object>> question) throws Throwable {
        CompletableFuture<Object> answer = new CompletableFuture<>();
        question.accept((error, result) -> {
            if (error != null) answer.completeExceptionally(error); else answer.complete(result);
        });
        try {
            return answer.get(PATIENCE, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException error) {
            throw error.getCause();
        }
    }

    @SuppressWarnings("unchecked")
    static <T> ResultCallback<T> castTo(ResultCallback<Object> callback) { return (error, result) -> callback.onDone(error, result); }

    static <T> T next(BlockingQueue<T> from) throws InterruptedException {
        T value = from.poll(PATIENCE, TimeUnit.SECONDS);
        if (value == null) throw new AssertionError("waited too long");
        return value;
    }

    static void same(Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError("expected " + expected + ", found " + found);
    }

    static String text(byte[] bytes) { return new String(bytes, StandardCharsets.UTF_8); }
    static String unique(String prefix) { return prefix + ProcessHandle.current().pid() + "-" + ++serial; }
}
