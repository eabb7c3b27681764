use touchline_registry::HashSeed;

use super::*;
use crate::events::StateKey;

type Book = LedgerBook<u32, &'static str>;

fn book(waiting: usize) -> Book {
    LedgerBook::new(BookLimits { batch: 10, waiting }, HashSeed::repeatable(7))
}

fn user(name: &str) -> StateKey {
    StateKey::User(name.into())
}

fn change(name: &str, is_gained: bool, is_held: bool) -> KeyChange {
    KeyChange { key: user(name), is_gained, is_held }
}

#[test]
fn a_batch_is_given_again_until_it_is_written() {
    let mut book = book(100);
    book.enter();
    assert!(book.next_batch().is_none() && book.is_settled());
    book.hold(user("ann"));
    book.tell("one");
    let first = book.next_batch().expect("something is to be written");
    assert_eq!((first.number, &*first.keys), (1, &[change("ann", true, true)][..]));
    book.release(&user("ann"));
    assert_eq!(book.next_batch().as_ref(), Some(&first), "the result is not known");
    book.written();
    let second = book.next_batch().expect("something has come since");
    assert_eq!((second.number, &*second.keys), (2, &[change("ann", false, false)][..]));
    assert!(!book.is_settled());
    book.written();
    assert!(book.is_settled());
}

#[test]
fn a_key_that_comes_and_goes_in_a_batch_was_gained_and_is_not_held() {
    let mut book = book(100);
    book.enter();
    book.hold(user("ann"));
    book.release(&user("ann"));
    book.release(&user("nobody"));
    assert_eq!(book.next_batch().expect("a change waits").keys, [change("ann", true, false)]);
}

#[test]
fn a_new_life_begins_with_all_that_is_held_and_ends_nothing_itself() {
    let mut book = book(100);
    book.enter();
    for (client, name) in [("a", "ann"), ("b", "bob")] {
        book.connect(client.into(), 1);
        book.hold(user(name));
    }
    book.tell("kept");
    book.next_batch();
    book.lapse();
    assert!(!book.is_in() && book.next_batch().is_none());
    book.disconnect("b", "gone");
    book.release(&user("bob"));
    book.connect("c".into(), 2);
    book.hold(user("cid"));
    book.enter();
    let batch = book.next_batch().expect("everything is to be written");
    let mut keys = batch.keys.clone();
    keys.sort_by(|one, two| one.key.cmp(&two.key));
    assert_eq!(keys, [change("ann", true, true), change("cid", true, true)]);
    let told = |note: &BookNote<u32, &'static str>| match note {
        BookNote::Connected(client, _) => format!("+{client}"),
        BookNote::Disconnected(client, ..) => format!("-{client}"),
        BookNote::Other(what) => (*what).to_owned(),
    };
    let mut notes: Vec<String> = batch.notes.iter().map(told).collect();
    assert_eq!(notes.pop().as_deref(), Some("kept"), "what was not written for certain is told again");
    notes.sort();
    assert_eq!(notes, ["+a", "+c"]);
}

#[test]
fn memory_is_bounded_in_a_life_and_outside() {
    for is_in in [true, false] {
        let mut book = book(50);
        if is_in {
            book.enter();
            book.next_batch();
        }
        for n in 0..10_000_u32 {
            let name = format!("u{n}");
            book.connect(name.clone().into(), n);
            book.hold(user(&name));
            book.disconnect(&name, "gone");
            book.release(&user(&name));
            book.tell("other");
            assert!(book.len() <= 2 * 51 + 2, "{}", book.len());
        }
        assert!(book.take_dropped() > 0, "what is lost is counted");
        assert_eq!(book.take_dropped(), 0);
    }
}
