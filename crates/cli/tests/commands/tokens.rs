//! `touchline token --check`, step by step, and secrets in separate files.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{SECRET, Server, run, text, touchline};

/// A file that is removed when its test ends.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("touchline-tokens-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary directory is writable");
        TestFile(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A token with this header, signed with the key pair.
fn signed(pair: &Ed25519KeyPair, header: &Value, claims: &Value) -> String {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())))
}

/// Starts an endpoint that returns the key as `k1`, with this status, for each request. Returns its URL.
fn endpoint(pair: &Ed25519KeyPair, status: &'static str) -> String {
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    let body = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x}]}).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|length| length > 0) {}
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    format!("http://{address}/keys")
}

/// The output of a check of a token: name and result of each step, the last line, and the whole text.
fn check(configuration: &TestFile, token: &str) -> (Vec<(String, String)>, String, String) {
    let output = run(&["token", "--check", token, "--config", &configuration.path()]);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    let steps = out.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, word) = (words.next()?, words.next()?);
        matches!(word, "ok" | "no" | "-").then(|| (name.to_owned(), word.to_owned()))
    });
    let verdict = if output.status.success() { out.lines().last().unwrap_or_default() } else { error.trim() };
    (steps.collect(), verdict.to_owned(), format!("{out}{error}"))
}

/// The first letter of the result of each step, in their order: `o` for ok, `n` for no, `-` for a step not taken.
fn words(steps: &[(String, String)]) -> String {
    steps.iter().map(|(_, word)| word.chars().next().unwrap_or_default()).collect()
}

#[test]
fn each_step_of_a_wrong_token_is_told_and_no_secret() {
    let [pair, other] = [(); 2].map(|()| Ed25519KeyPair::generate().expect("the system has randomness"));
    let configuration = TestFile::new(
        "issuers.toml",
        &format!(
            "http_api.key = \"the-key-of-this-test\"\n[client.token.jwks]\nenabled = true\n\
             [[client.token.jwks.providers]]\nname = \"kc\"\nenabled = true\nissuer = \"https://id\"\n\
             audience = \"live\"\nuser_id_claim = \"uid\"\nendpoint = {:?}\n\
             [[client.token.jwks.providers]]\nname = \"own\"\nenabled = true\nissuer = \"https://own\"\n\
             hmac_secret_key = {SECRET:?}\n",
            endpoint(&pair, "200 OK")
        ),
    );
    let good = json!({"uid": "42", "iss": "https://id", "aud": "live"});
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        claims
    };
    let head = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let eddsa = |claims: &Value| signed(&pair, &head("EdDSA", "k1"), claims);
    let (steps, verdict, _) = check(&configuration, &eddsa(&good));
    assert_eq!((words(&steps).as_str(), verdict.as_str()), ("ooooooooo", "good: user \"42\", never expires"));
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    let expected = "format provider key algorithm signature times issuer audience claims";
    assert_eq!(names.join(" "), expected);
    let cut = eddsa(&good).rsplit_once('.').map(|(signed, _)| signed.to_owned()).expect("three parts");
    for (token, expected, cause) in [
        ("<html>".to_owned(), "n--------", "is not a JWT"),
        (cut, "n--------", "is not a JWT"),
        (signed(&pair, &json!({"alg": "EdDSA", "crit": ["x"]}), &good), "n--------", "has crit"),
        (eddsa(&with("iss", json!("https://other"))), "on-------", "name none of the configured issuers"),
        (eddsa(&with("aud", json!("web"))), "on-------", "name none of the configured issuers"),
        (signed(&pair, &head("RS256", "k1"), &good), "ooon-----", "does not fit the key of its kid"),
        (signed(&pair, &head("none", "k1"), &good), "n--------", "alg of the token is none of"),
        (signed(&pair, &head("none", "k2"), &good), "n--------", "alg of the token is none of"),
        (format!("Bearer {}", eddsa(&good)), "n--------", "is it the token alone?"),
        (String::new(), "n--------", "is it the token alone?"),
        (
            signed(&pair, &head("EdDSA", "k2"), &good),
            "oon------",
            "no: no key of the token's issuer has the kid of the token",
        ),
        (signed(&pair, &json!({"alg": "EdDSA"}), &good), "oon------", "has no kid"),
        (signed(&other, &head("EdDSA", "k1"), &good), "oooon----", "does not match the key of its kid"),
        (eddsa(&with("exp", json!(100))), "ooooon---", "exp of the token has passed"),
        (eddsa(&with("exp", json!(-1e300))), "ooooon---", "has passed 1e300 s ago"),
        (eddsa(&with("nbf", json!(99_999_999_999_u64))), "ooooon---", "nbf of the token is in the future"),
        (eddsa(&with("uid", json!(null))), "oooooooon", "lacks the claim of user_id_claim"),
        (eddsa(&with("channels", json!(7))), "oooooooon", "channels of the token is not a list of texts"),
        (eddsa(&with("subs", json!([]))), "oooooooon", "subs of the token is not an object with channels as keys"),
        (eddsa(&with("channel", json!("news:a"))), "oooooooon", "a subscription token was sent"),
    ] {
        let (steps, verdict, all) = check(&configuration, &token);
        assert_eq!(words(&steps), expected, "{all}");
        assert!(verdict.contains(cause), "{cause}: {all}");
        assert!(all.lines().all(|line| line.len() < 400), "{all}");
        let signature = token.rsplit('.').next().filter(|signature| signature.len() > 20);
        assert!(!all.contains(SECRET) && signature.is_none_or(|signature| !all.contains(signature)), "{all}");
    }
}

#[test]
fn what_a_token_says_is_shown_without_what_a_terminal_obeys() {
    let configuration = TestFile::new("shown.toml", &format!("[client.token]\nhmac_secret_key = {SECRET:?}\n"));
    let made = |claims: Value| {
        text(&run(&["token", "--secret", SECRET, "--user", "42", "--claims", &claims.to_string()]).stdout)
            .trim()
            .to_owned()
    };
    let (_, verdict, all) =
        check(&configuration, &made(json!({"iss": "\u{9b}31m\u{202e}", "sub": "\u{202e}ann", "exp": 1e300})));
    assert_eq!(verdict, "good: user \"\\u{202e}ann\", expires in 1e300 s", "{all}");
    assert!(!all.contains(['\u{9b}', '\u{202e}']), "{all}");
    let (_, _, all) = check(&configuration, &made(json!({"exp": 1_900_000_000_000_u64})));
    assert!(all.contains("is it in milliseconds?") && all.contains("not checked: bans"), "{all}");
    let (_, verdict, all) = check(&configuration, &made(json!({"sub": ""})));
    assert!(verdict.starts_with("good: the anonymous user"), "{all}");
    assert!(all.contains("claims     ok  no sub: the client is anonymous"), "{all}");
}

#[test]
fn a_check_says_that_keys_cannot_be_fetched() {
    let pair = Ed25519KeyPair::generate().expect("the system has randomness");
    let configuration = TestFile::new(
        "failing.toml",
        &format!("[client.token]\njwks_public_endpoint = {:?}\n", endpoint(&pair, "503 Busy")),
    );
    let token = signed(&pair, &json!({"alg": "EdDSA", "kid": "k1"}), &json!({"sub": "42"}));
    let (steps, verdict, all) = check(&configuration, &token);
    assert_eq!(words(&steps), "on------", "{all}");
    assert!(all.contains("the keys of client.token cannot be fetched: the endpoint has answered 503"), "{all}");
    assert!(verdict.contains("not known: the keys of the token's issuer could not be fetched yet"), "{all}");
}

/// The configuration of a server without secrets, which are in other files.
const NO_SECRETS: &str = r#"
http_server.address = "127.0.0.1"
shutdown.spread = "100ms"
[[http_api.keys]]
name = "news"
channels = ["news:*"]
[[channel.namespaces]]
name = "news"
"#;

#[test]
fn a_server_takes_its_secrets_from_files_and_from_systemd() {
    let directory = std::env::temp_dir().join(format!("touchline-credentials-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    std::fs::write(directory.join("http_api.keys.news.key"), "the-key-of-the-news\n").expect("it is writable");
    std::fs::write(directory.join("http_api.key"), "the-key-of-all-things\n").expect("it is writable");
    let token = TestFile::new("token-secret", &format!("{SECRET}\n"));
    let configuration = TestFile::new("no-secrets.toml", NO_SECRETS);
    let variables = [
        ("CREDENTIALS_DIRECTORY", directory.display().to_string()),
        ("TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY_FILE", token.path()),
    ];
    let mut serve = touchline(&["serve", "--config", &configuration.path(), "--port", "0"]);
    let mut server = Server::spawn(serve.envs(variables.clone()), configuration.0.clone());
    let publish = |channel: &str, key: &str| {
        run(&["publish", channel, "1", "--api", &server.api(), "--key", key]).status.success()
    };
    assert!(publish("news:a", "the-key-of-the-news") && publish("news:a", "the-key-of-all-things"));
    assert!(!publish("news:a", "the-key-of-nobody") && !publish("other", "the-key-of-the-news"));
    let made = text(&run(&["token", "--user", "42", "--secret", SECRET]).stdout);
    let mut check = touchline(&["token", "--check", made.trim(), "--config", &configuration.path()]);
    let checked = check.envs(variables).output().expect("the binary runs");
    assert!(text(&checked.stdout).contains("good: user \"42\""), "{}", text(&checked.stderr));
    assert_eq!(server.program.stop().code(), Some(0));
    let without = touchline(&["serve", "--config", &configuration.path(), "--port", "0"]).output().expect("it runs");
    let said = text(&without.stderr);
    assert!(!without.status.success() && said.contains("http_api.keys[news].key: missing"), "{said}");
    std::fs::remove_dir_all(directory).expect("nothing is in use any more");
}
