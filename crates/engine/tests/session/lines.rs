//! Lines over TCP: a person who types them may make mistakes, but a page that makes a browser send a request may not.

use touchline_engine::session::TransportMode;

use crate::story::{Story, with_history};
use crate::tokens::calm;

const MISTAKE: &str = "ann> x\nann< {\"error\":{\"code\":4013,\"message\":\"bad request: \
     expected one JSON command a line, first of all {\\\"id\\\":1,\\\"connect\\\":{\\\"token\\\":\\\"...\\\"}}\"}}\n";
const OVER: &str = "ann< disconnect 3509 too many errors";

fn typed() -> Story {
    let mut story = Story::with(calm);
    story.open("ann", TransportMode::Lines);
    story
}

#[test]
fn ten_mistakes_are_too_many_and_a_hundred_commands_make_up_for_one() {
    typed().play(&(MISTAKE.repeat(10) + OVER));
    let mut story = typed();
    story.play(&MISTAKE.repeat(2));
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
    story.play(&MISTAKE.repeat(7));
    // 99 commands, including the connect, do not cancel out one of the nine mistakes. With 100 there may be another
    // mistake.
    (0..99).for_each(|_| story.play("ann> {}"));
    story.play(MISTAKE);
    story.play(&(MISTAKE.to_owned() + OVER));
    let mut story = typed();
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
    story.play(&MISTAKE.repeat(9));
    (0..99).for_each(|_| story.play("ann> {}"));
    story.play(&(MISTAKE.to_owned() + OVER));
    // Commands before a mistake cannot be saved up.
    let mut story = typed();
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
    (0..500).for_each(|_| story.play("ann> {}"));
    story.play(&(MISTAKE.repeat(10) + OVER));
}

#[test]
fn a_request_of_http_is_the_last_thing_that_is_read() {
    let page = MISTAKE.replace("ann> x", "ann> POST / HTTP/1.1");
    typed().play(&(page.clone() + OVER));
    // A client that has connected is not a page.
    let mut story = typed();
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
    story.play(&page);
    // What follows a mistake in the same message is not read.
    let mut story = typed();
    story.say("ann", "x\n{\"id\":1,\"connect\":{}}");
    assert!(!story.session("ann").is_connected());
    assert_eq!(story.received("ann").len(), 1);
}

#[test]
fn an_empty_line_is_nothing() {
    let mut story = typed();
    story.play("ann> \r\nann>  ");
    story.say("ann", "\n \r\n");
    story.play(
        r#"ann> {"id":1,"connect":{}}
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","ping":100000}}"#,
    );
}

#[test]
fn several_commands_of_one_message_are_carried_out_in_order() {
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.namespace("log", |options| {
            with_history(options);
            (options.allow_publish_for_client, options.allow_history_for_client) = (true, true);
        });
    });
    let connect = r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#;
    let publish = r#"{"id":2,"publish":{"channel":"log:a","data":1}}"#;
    story.say("ann", &format!("{connect}\n{publish}\n{}\n", r#"{"id":3,"history":{"channel":"log:a","limit":5}}"#));
    story.play(
        r#"
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","ping":100000,"pong":true}}
        ann< {"id":2,"publish":{}}
        ann< {"id":3,"history":{"publications":[{"data":1,"info":{"user":"ann","client":"<ann>"},"offset":1,\
            "time":1000000000000,"epoch":"epoch-1"}],"epoch":"epoch-1","offset":1}}
        "#,
    );
    // Nothing is executed after the command that ends the connection.
    story.say(
        "ann",
        "{\"id\":4,\"publish\":{\"channel\":\"\"}}\n{\"id\":5,\"publish\":{\"channel\":\"log:a\",\"data\":2}}",
    );
    story.play("ann< disconnect 3501 bad request");
    assert_eq!(story.requests.iter().filter(|(_, request)| request.starts_with("Publish")).count(), 1);
}
