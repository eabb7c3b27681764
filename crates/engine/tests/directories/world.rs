//! Nodes that receive each other's messages, and their effects as lines of text.

use serde_json::Value;
use touchline_engine::directory::{
    self, Directory, DirectoryEffect, DirectoryReply, DirectoryRequest, RegistryMethod, Requester, ScopeOptions,
    Scopes, client_text, numbered,
};
use touchline_protocol::Error;
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

/// Reads the request of a method, by the method's name.
pub(crate) fn read(method: &str, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let method = RegistryMethod::from_name(method).ok_or(Error::METHOD_NOT_FOUND)?;
    Ok(directory::read(method, params, scopes)?)
}

pub(crate) const START_MS: u64 = 1_000_000;
/// The longest jump of time, milliseconds. After a longer one, a node assumes that it stood still.
const JUMP_MS: u64 = 500;
/// The number of clients whose ids are shown as `c1`, `c2` ….
const CLIENTS: u32 = 40;

/// The nodes of a story. Calls of the first node have the numbers 101, 102 …, those of the second 201, 202 ….
pub(crate) struct World {
    pub(crate) now_ms: u64,
    nodes: Vec<(&'static str, Directory<u32>)>,
    /// The nodes that are cut off from all others.
    cut_off: Vec<&'static str>,
    /// The size of the largest message between nodes since the beginning, bytes.
    pub(crate) largest: usize,
}

/// The options of most stories: the scope `devices`, and a second one, `robots`, with the defaults.
pub(crate) fn devices() -> ScopeOptions {
    ScopeOptions { name: "devices".into(), ..ScopeOptions::default() }
}

pub(crate) fn owner(client: u32) -> OwnerId {
    OwnerId([client as u8; 16])
}

/// A client as a requester: client 1 is of user `u1`, and so on; 0 is a backend.
pub(crate) fn requester(client: u32) -> Requester {
    let user = if client == 0 { String::new() } else { format!("u{client}") };
    Requester { owner: owner(client), user: user.into(), is_backend: client == 0 }
}

/// One of many clients, whose id has no short form.
pub(crate) fn one_of_many(number: u32) -> Requester {
    let mut requester = requester(1);
    requester.owner.0[..4].copy_from_slice(&number.to_be_bytes());
    requester
}

impl World {
    /// A node without a cluster.
    pub(crate) fn alone(options: ScopeOptions) -> Self {
        World::with(&["a"], options, false)
    }

    /// Nodes that do not know each other yet.
    pub(crate) fn strangers(names: &[&'static str], options: ScopeOptions) -> Self {
        World::with(names, options, true)
    }

    /// Nodes that know each other.
    pub(crate) fn cluster(names: &[&'static str], options: ScopeOptions) -> Self {
        let mut world = World::strangers(names, options);
        let lines = world.pass(3_000);
        assert_eq!(lines, [""; 0]);
        world
    }

    /// The same, with changed options for the scope `devices`.
    pub(crate) fn with_options(names: &[&'static str], change: impl FnOnce(&mut ScopeOptions)) -> Self {
        let mut options = devices();
        change(&mut options);
        World::cluster(names, options)
    }

    fn with(names: &[&'static str], options: ScopeOptions, is_clustered: bool) -> Self {
        let scopes = [options, ScopeOptions { name: "robots".into(), ..ScopeOptions::default() }];
        let node = |(number, name): (u64, &&'static str)| {
            (
                *name,
                Directory::new(
                    name,
                    &scopes,
                    &ReplicaTiming::default(),
                    (number * 100) << 12,
                    HashSeed::repeatable(7),
                    is_clustered,
                    START_MS,
                ),
            )
        };
        World { now_ms: START_MS, nodes: (1..).zip(names).map(node).collect(), cut_off: Vec::new(), largest: 0 }
    }

    pub(crate) fn node(&mut self, name: &str) -> &mut Directory<u32> {
        self.nodes.iter_mut().find(|(known, _)| *known == name).map(|(_, node)| node).expect("a node")
    }

    /// Cuts a node off from all others from now on.
    pub(crate) fn cut_off(&mut self, name: &'static str) {
        self.cut_off.push(name);
    }

    /// Executes a request as a client writes it. Returns everything that it causes.
    pub(crate) fn ask(&mut self, node: &str, client: u32, method: &str, params: &Value) -> Vec<String> {
        match read(method, &params.to_string(), &self.node(node).scopes()) {
            Ok(ask) => self.order(node, client, ask),
            Err(error) => vec![refused(node, client, error)],
        }
    }

    /// The same for a request that a client need not be able to write.
    pub(crate) fn order(&mut self, node: &str, client: u32, ask: DirectoryRequest) -> Vec<String> {
        let now_ms = self.now_ms;
        self.node(node).execute(&requester(client), ask, Some(client), now_ms);
        self.settle()
    }

    /// Disconnects a client.
    pub(crate) fn close(&mut self, node: &str, client: u32) -> Vec<String> {
        let now_ms = self.now_ms;
        self.node(node).execute(&requester(client), DirectoryRequest::Close, None, now_ms);
        self.settle()
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms = until_ms.min(self.now_ms + JUMP_MS);
            let now_ms = self.now_ms;
            self.nodes.iter_mut().for_each(|(_, node)| node.tick(now_ms));
            lines.extend(self.settle());
        }
        lines
    }

    /// Carries out the effects of the nodes until there are none.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let before = lines.len();
            let mut is_quiet = true;
            for index in 0..self.nodes.len() {
                let from = self.nodes[index].0;
                self.nodes[index].1.flush();
                for act in self.nodes[index].1.effects().collect::<Vec<_>>() {
                    is_quiet = false;
                    lines.extend(self.carry_out(from, act));
                }
            }
            if is_quiet && lines.len() == before {
                return lines;
            }
        }
    }

    fn carry_out(&mut self, from: &'static str, act: DirectoryEffect<u32>) -> Option<String> {
        let now_ms = self.now_ms;
        Some(match act {
            DirectoryEffect::SendToScope { scope, to, message } => {
                self.largest = self.largest.max(message.len());
                let cut_off = &self.cut_off;
                let hears =
                    |name: &str| name != from && to.as_ref().is_none_or(|to| **to == *name) && !cut_off.contains(&from);
                let others = self.nodes.iter_mut().filter(|(name, _)| hears(name) && !cut_off.contains(name));
                others.for_each(|(_, node)| node.receive(&scope, &message, now_ms));
                return None;
            }
            DirectoryEffect::Node(to, message) => {
                self.largest = self.largest.max(message.len());
                let is_heard = !self.cut_off.contains(&from) && !self.cut_off.contains(&&*to);
                if is_heard && let Some((_, node)) = self.nodes.iter_mut().find(|(name, _)| **name == *to) {
                    node.receive_from_node(from, &message, now_ms);
                }
                format!("{from} tells {to}: {}", shown(&message))
            }
            DirectoryEffect::Reply(asker, Ok(answered)) => format!("{from} answers {asker}: {}", json(answered)),
            DirectoryEffect::Reply(asker, Err(error)) => refused(from, asker, error),
            DirectoryEffect::Push(client, message) => format!("{from} gives {}: {}", named(&[client]), shown(&message)),
            DirectoryEffect::PushMany(clients, push) => {
                format!("{from} gives {}: {}", named(&clients), shown(push.json()))
            }
            DirectoryEffect::Call(client, call, message) => {
                format!("{from} asks {}: {}", named(&[client]), shown(&numbered(call, &message)))
            }
            DirectoryEffect::Disconnect(client) => format!("{from} disconnects {}", named(&[client])),
            DirectoryEffect::Announce(channel, push) => {
                format!("{from} announces in {channel}: {}", shown(push.json()))
            }
            DirectoryEffect::PublishChanges(channel, message) => {
                format!("{from} publishes in {channel}: {}", shown(&message))
            }
            DirectoryEffect::ResolveConflict { scope, mine, .. } => {
                format!("{from} asks who keeps {} of {scope}", mine.key())
            }
            DirectoryEffect::Tell(incident) => format!("{from} tells {:?} of {}", incident.kind, incident.entry.key()),
            DirectoryEffect::TellLost(lost) => format!("{from} tells that {} is lost", named(&[lost.client])),
            DirectoryEffect::Probe => format!("{from} looks at its connections"),
            DirectoryEffect::OptionsDiffer { scope, node } => {
                format!("{from} has other options of {scope} than {node}")
            }
            DirectoryEffect::StoreMessage { scope, name, message, expires_ms, most, asker } => {
                let left_ms = expires_ms.saturating_sub(now_ms);
                format!(
                    "{from} keeps {left_ms} ms among {most} for {name} in {scope}, asked by {asker:?}: {}",
                    shown(&message)
                )
            }
            DirectoryEffect::LoadMessages { scope, name, behind, limit } => {
                format!("{from} fetches {limit} behind {behind} of {name} in {scope}")
            }
            DirectoryEffect::DiscardMessages { ids, asker } => {
                format!("{from} throws {ids:?} away, asked by {asker:?}")
            }
        })
    }
}

fn refused(node: &str, asker: u32, error: Error) -> String {
    format!("{node} refuses {asker}: {} {}", error.code, error.message)
}

pub(crate) fn json(answered: DirectoryReply) -> String {
    shown(&answered.json())
}

fn named(clients: &[OwnerId]) -> String {
    clients.iter().map(|client| shown(client_text(*client).as_bytes())).collect::<Vec<_>>().join(" ")
}

/// JSON with short forms for client ids, and without the stamps of versions.
pub(crate) fn shown(json: &[u8]) -> String {
    let mut text = String::from_utf8(json.to_vec()).expect("text");
    for client in 0..CLIENTS {
        text = text.replace(&client_text(owner(client)), &format!("c{client}"));
    }
    let mut pieces = text.split("\"version\":\"");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let revision = piece.split_once('.').map_or("", |(_, revision)| revision);
        format!("{text}\"version\":\"*.{revision}")
    })
}
