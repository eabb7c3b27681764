use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn proxies(texts: &[&str]) -> Proxies {
    Proxies::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).expect("valid networks")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn client(trusted: &[&str], peer: &str, fields: &[(&str, &str)]) -> Result<Remote, Ambiguous> {
    let headers: Vec<_> =
        fields.iter().map(|(name, value)| httparse::Header { name, value: value.as_bytes() }).collect();
    proxies(trusted).client(Remote::of(ip(peer)), &&headers[..])
}

/// The client's address as reported by the proxy 10.0.0.1 of the network 10.0.0.0/8.
fn told(fields: &[(&str, &str)]) -> String {
    client(&["10.0.0.0/8", "fd00::/8"], "10.0.0.1", fields).expect("headers agree").address.to_string()
}

#[test]
fn networks_are_read_and_contain_what_they_should() {
    for (network, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
        ("192.0.2.128/25", "192.0.2.200", "192.0.2.127"),
        ("0.0.0.0/0", "203.0.113.1", "::1"),
        ("::/0", "2001:db8::1", "10.0.0.1"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ("10.1.2.3/8", "10.9.9.9", "9.9.9.9"),
        ("10.0.0.0/8", "::ffff:10.1.1.1", "::ffff:11.1.1.1"),
    ] {
        let proxies = proxies(&[network]);
        assert!(proxies.contains(ip(inside)), "{network} {inside}");
        assert!(!proxies.contains(ip(outside)), "{network} {outside}");
    }
    for bad in [
        "",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0/8",
        "localhost",
        "10.0.0.1:80",
        " 10.0.0.1",
        "10.0.0.0/8/8",
    ] {
        assert_eq!(Proxies::parse(&[bad.to_owned()]), Err(BadNetwork(bad.to_owned())));
    }
}

#[test]
fn x_forwarded_for_counts_from_the_right_up_to_the_first_untrusted_hop() {
    for (lines, address) in [
        (&["203.0.113.9"][..], "203.0.113.9"),
        (&["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
        (&["1.2.3.4, 203.0.113.9, 10.2.2.2,10.3.3.3"], "203.0.113.9"),
        (&["1.2.3.4", "203.0.113.9", "10.2.2.2"], "203.0.113.9"),
        (&["10.4.4.4, 10.2.2.2"], "10.4.4.4"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]:443, fd00::1"], "2001:db8::1"),
        (&["203.0.113.9:51234"], "203.0.113.9"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        // A malformed hop ends the walk.
        (&["203.0.113.9, nonsense"], "10.0.0.1"),
        (&["203.0.113.9, nonsense, 10.2.2.2"], "10.2.2.2"),
        (&["203.0.113.9,"], "10.0.0.1"),
        (&["203.0.113.9", ""], "10.0.0.1"),
        (&["203.0.113.9, unknown"], "10.0.0.1"),
        (&["203.0.113.9:port"], "10.0.0.1"),
        (&["203.0.113.9:123456"], "10.0.0.1"),
        (&["[203.0.113.9]"], "10.0.0.1"),
        (&["[2001:db8::1"], "10.0.0.1"),
        (&["2001:db8::1]"], "10.0.0.1"),
        (&["203.0.113.9 203.0.113.8"], "10.0.0.1"),
        (&["\"203.0.113.9\""], "10.0.0.1"),
        (&["203.0.113.009"], "10.0.0.1"),
        (&[], "10.0.0.1"),
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
        assert_eq!(told(&fields), address, "{lines:?}");
    }
}

#[test]
fn forwarded_counts_alike() {
    for (lines, address) in [
        (&["for=203.0.113.9"][..], "203.0.113.9"),
        (&["For=1.2.3.4, for=203.0.113.9;proto=https;by=10.0.0.1"], "203.0.113.9"),
        (&["for=1.2.3.4", "host=\"a,b;c\";for=203.0.113.9", "for=10.2.2.2"], "203.0.113.9"),
        (&["for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (&["for=\"203.0.113.9:80\" ; proto=http"], "203.0.113.9"),
        // An unclosed quote swallows nothing.
        (&["for=\"1.2.3.4, for=203.0.113.9"], "203.0.113.9"),
        (&["for=\"x", "for=203.0.113.9"], "203.0.113.9"),
        (&["for=x\\\", for=203.0.113.9"], "203.0.113.9"),
        // The address is hidden, missing, doubled or malformed.
        (&["for=1.2.3.4, for=_hidden"], "10.0.0.1"),
        (&["for=1.2.3.4, for=unknown, for=10.2.2.2"], "10.2.2.2"),
        (&["for=1.2.3.4, by=10.0.0.1"], "10.0.0.1"),
        (&["for=1.2.3.4;for=203.0.113.9"], "10.0.0.1"),
        (&["for=1.2.3.4, nonsense"], "10.0.0.1"),
        (&["for=1.2.3.4, "], "10.0.0.1"),
        (&["for=1.2.3.4;"], "10.0.0.1"),
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
        assert_eq!(told(&fields), address, "{lines:?}");
    }
}

#[test]
fn two_headers_must_tell_the_same() {
    let both = |list, element| client(&["10.0.0.1"], "10.0.0.1", &[("X-Forwarded-For", list), ("Forwarded", element)]);
    assert_eq!(both("203.0.113.9", "for=203.0.113.9").map(|remote| remote.address), Ok(ip("203.0.113.9")));
    assert_eq!(both("203.0.113.9", "for=127.0.0.1"), Err(Ambiguous));
    assert_eq!(both("127.0.0.1", "for=203.0.113.9"), Err(Ambiguous));
    assert_eq!(both("203.0.113.9", "nonsense"), Err(Ambiguous));
}

#[test]
fn others_are_not_believed() {
    let forged = [("X-Forwarded-For", "127.0.0.1"), ("Forwarded", "for=10.0.0.1")];
    for trusted in [&[][..], &["10.0.0.1"]] {
        assert_eq!(client(trusted, "203.0.113.9", &forged), Ok(Remote::of(ip("203.0.113.9"))));
    }
}

#[test]
fn behind_a_header_of_the_proxy_protocol_nobody_is_believed() {
    let proxies = proxies(&["10.0.0.0/8"]);
    let forged = [httparse::Header { name: "X-Forwarded-For", value: b"127.0.0.1" }];
    for peer in [
        Remote::unknown_behind(ip("10.0.0.1")),
        Remote::introduced_by(ip("10.0.0.1"), ip("10.0.0.2")),
        Remote::introduced_by(ip("10.0.0.1"), ip("203.0.113.9")),
    ] {
        assert_eq!(proxies.client(peer, &&forged[..]), Ok(peer));
    }
}

#[test]
fn whom_a_proxy_says_nothing_of_is_not_on_this_machine() {
    let of = |fields: &[(&str, &str)]| client(&["127.0.0.1"], "127.0.0.1", fields).expect("headers agree");
    assert_eq!(of(&[]), Remote { is_loopback: false, ..Remote::of(ip("127.0.0.1")) });
    assert_eq!(
        of(&[("X-Forwarded-For", "127.0.0.1, x")]),
        Remote { is_loopback: false, ..Remote::of(ip("127.0.0.1")) }
    );
    assert_eq!(of(&[("X-Forwarded-For", "127.0.0.1")]), Remote::of(ip("127.0.0.1")));
    assert_eq!(of(&[("X-Forwarded-For", "127.0.0.1, 203.0.113.9")]), Remote::of(ip("203.0.113.9")));
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|n| Ipv4Addr::from(n).into()),
        any::<u128>().prop_map(|n| Ipv6Addr::from(n).into())
    ]
}

proptest! {
    #[test]
    fn what_a_client_writes_never_changes_who_it_is(
        noise in proptest::collection::vec(any::<u8>(), 0..60),
        real in address(),
        by_list: bool,
    ) {
        let proxies = proxies(&["10.0.0.1"]);
        prop_assume!(!proxies.contains(real));
        let (name, told) = match (by_list, real) {
            (true, _) => ("x-forwarded-for", real.to_string()),
            (false, IpAddr::V4(_)) => ("forwarded", format!("for={real}")),
            (false, IpAddr::V6(_)) => ("forwarded", format!("for=\"[{real}]\"")),
        };
        let joined = [&noise[..], b", ", told.as_bytes()].concat();
        let peer = Remote::of(ip("10.0.0.1"));
        // A proxy on another machine does not know which clients are on this one.
        let expected = Remote { is_loopback: false, ..Remote::of(real) };
        let one_line = [httparse::Header { name, value: &joined }];
        prop_assert_eq!(proxies.client(peer, &&one_line[..]), Ok(expected));
        let two_lines = [httparse::Header { name, value: &noise }, httparse::Header { name, value: told.as_bytes() }];
        prop_assert_eq!(proxies.client(peer, &&two_lines[..]), Ok(expected));
    }

    #[test]
    fn a_network_contains_what_has_its_bits(address: u128, other: u128, prefix in 0u32..=128) {
        let network = proxies(&[&format!("{}/{prefix}", Ipv6Addr::from(address))]);
        let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
        let other = Ipv6Addr::from(other);
        prop_assume!(other.to_ipv4_mapped().is_none());
        prop_assert_eq!(network.contains(other.into()), other.to_bits() & mask == address & mask);
        prop_assume!(Ipv6Addr::from(address).to_ipv4_mapped().is_none());
        prop_assert!(network.contains(Ipv6Addr::from(address).into()));
    }
}
