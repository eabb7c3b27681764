//! The directory of channels, searched by words and by similarity, compared with an independent computation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;

use touchline_store::{ChannelDescription, OnDone, Search, SearchResult, StoreRefusal};
use touchline_testkit::PATIENCE;

use crate::stage::{Stage, on_both, tells};

/// A channel with title, description, type and tags. The stems of all words are listed separately.
type Known = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const FIXTURE: &[Known] = &[
    ("match:1", "Rovers against United", "The rovers play the cup final in Leeds", "match", &["cup", "leeds"]),
    ("match:2", "United against City", "A friendly match, played in the rain", "match", &["friendly"]),
    ("match:3", "Rovers and Wanderers", "Second leg of the cup", "match", &["cup"]),
    ("player:9", "Jane Rover", "Plays for United. Scored in three finals", "player", &["united"]),
    ("news:1", "Transfers", "All transfers of players this winter", "news", &[]),
    ("news:2", "Weather", "Rain in Leeds", "news", &["leeds"]),
    ("untitled:7", "", "", "", &[]),
];

/// The stems of the fixture's words, written by hand. A word that is not here does not count.
const STEMS: &[(&str, &[&str])] = &[
    ("rover", &["rovers", "rover"]),
    ("unit", &["united"]),
    ("play", &["play", "played", "plays"]),
    ("cup", &["cup"]),
    ("final", &["final", "finals"]),
    ("leed", &["leeds"]),
    ("match", &["match"]),
    ("citi", &["city"]),
    ("friend", &["friendly"]),
    ("rain", &["rain"]),
    ("wander", &["wanderers"]),
    ("second", &["second"]),
    ("leg", &["leg"]),
    ("jane", &["jane"]),
    ("score", &["scored"]),
    ("three", &["three"]),
    ("player", &["player", "players"]),
    ("transfer", &["transfers"]),
    ("winter", &["winter"]),
    ("news", &["news"]),
    ("weather", &["weather"]),
    ("untitl", &["untitled"]),
    ("7", &["7"]),
];

/// An independent similarity of two channels by full vectors over all stems. It shares no code with the code under
/// test.
struct Model {
    worth: Vec<f64>,
    vectors: BTreeMap<&'static str, Vec<f64>>,
}

impl Model {
    fn new() -> Self {
        let counts = |text: &str| -> Vec<f64> {
            let words: Vec<String> = text.to_lowercase().split([' ', ',', '.', ':']).map(str::to_owned).collect();
            STEMS
                .iter()
                .map(|(_, forms)| words.iter().filter(|word| forms.contains(&&***word)).count() as f64)
                .collect()
        };
        let weighted = |(channel, title, description, kind, tags): &Known| {
            let name = if title.is_empty() { channel } else { title };
            let fields =
                [(counts(name), 10.0), (counts(description), 3.0), (counts(kind), 1.0), (counts(&tags.join(" ")), 1.0)];
            let sum = |stem: usize| fields.iter().map(|(counts, weight)| counts[stem] * weight).sum::<f64>();
            (*channel, (0..STEMS.len()).map(sum).collect::<Vec<f64>>())
        };
        let mut vectors: BTreeMap<&str, Vec<f64>> = FIXTURE.iter().map(weighted).collect();
        let with = |stem: usize| vectors.values().filter(|vector| vector[stem] > 0.0).count().max(1) as f64;
        let worth: Vec<f64> = (0..STEMS.len()).map(|stem| (1.0 + FIXTURE.len() as f64 / with(stem)).ln()).collect();
        vectors
            .values_mut()
            .for_each(|vector| vector.iter_mut().zip(&worth).for_each(|(value, worth)| *value *= worth));
        Model { worth, vectors }
    }

    fn cosine(a: &[f64], b: &[f64]) -> f64 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
    }

    /// The channels that have anything in common with one, the most similar first.
    fn similar(&self, to: &str) -> Vec<(&'static str, f64)> {
        let mut results = self.ranked(&self.vectors[to]);
        results.retain(|(channel, score)| *channel != to && *score > 0.0);
        results
    }

    /// The channels that have all given stems, the best match first.
    fn search(&self, stems: &[&str]) -> Vec<&'static str> {
        let query: Vec<f64> = STEMS
            .iter()
            .zip(&self.worth)
            .map(|((stem, _), worth)| if stems.contains(stem) { *worth } else { 0.0 })
            .collect();
        let has_all = |vector: &[f64]| query.iter().zip(vector).all(|(wanted, has)| *wanted == 0.0 || *has > 0.0);
        let results = self.ranked(&query).into_iter().map(|(channel, _)| channel);
        results.filter(|channel| has_all(&self.vectors[channel])).collect()
    }

    fn ranked(&self, to: &[f64]) -> Vec<(&'static str, f64)> {
        let mut all: Vec<_> =
            self.vectors.iter().map(|(channel, vector)| (*channel, Model::cosine(vector, to))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }
}

fn description(known: &Known) -> ChannelDescription {
    let (channel, title, description, kind, tags) = known;
    let text = |text: &&str| (*text).to_owned();
    let tags = tags.iter().map(text).collect();
    ChannelDescription {
        channel: text(channel),
        title: text(title),
        description: text(description),
        kind: text(kind),
        tags,
    }
}

fn done(write: impl FnOnce(OnDone)) {
    let (sender, reply) = channel();
    write(tells(&sender));
    assert_eq!(reply.recv_timeout(PATIENCE), Ok(Ok(())));
}

fn find(stage: &Stage, find: Search) -> Result<Vec<SearchResult>, StoreRefusal> {
    let (sender, reply) = channel();
    stage.store.search(
        find,
        Box::new(move |results| {
            let _ = sender.send(results);
        }),
    );
    reply.recv_timeout(PATIENCE).expect("the search gets a reply")
}

fn search(stage: &Stage, words: &str, kind: &str, tag: &str, (limit, offset): (usize, usize)) -> Vec<String> {
    let query = Search::Search { words: words.into(), kind: kind.into(), tag: tag.into(), limit, offset };
    find(stage, query).expect("the search is valid").into_iter().map(|result| result.description.channel).collect()
}

fn similar(stage: &Stage, channel: &str, limit: usize) -> Result<Vec<(String, f64)>, StoreRefusal> {
    let results = find(stage, Search::Similar { channel: channel.into(), limit })?;
    Ok(results.into_iter().map(|result| (result.description.channel, result.score)).collect())
}

fn fill(stage: &Stage) {
    FIXTURE.iter().for_each(|known| done(|done| stage.store.describe(description(known), done)));
}

#[test]
fn similar_channels_are_those_of_an_independent_computation() {
    let model = Model::new();
    on_both("similar", |settings| {
        let stage = Stage::open(settings);
        fill(&stage);
        for (channel, ..) in FIXTURE {
            let (results, expected) = (similar(&stage, channel, 100).expect("it is known"), model.similar(channel));
            assert_eq!(
                results.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
                expected.iter().map(|(name, _)| *name).collect::<Vec<_>>()
            );
            for ((_, score), (_, expected)) in results.iter().zip(&expected) {
                assert!((score - expected).abs() < 1e-9, "{channel}: {score} {expected}");
            }
        }
        assert_eq!(similar(&stage, "match:1", 2).expect("it is known").len(), 2);
        assert_eq!(similar(&stage, "untitled:7", 9), Ok(vec![]), "it has nothing in common with anything");
        assert_eq!(similar(&stage, "match:99", 9), Err(StoreRefusal::NotFound));
        stage.store.close();
    });
}

#[test]
fn channels_are_found_by_their_words() {
    let model = Model::new();
    on_both("search", |settings| {
        let stage = Stage::open(settings);
        fill(&stage);
        let all = (100, 0);
        assert_eq!(search(&stage, "rovers", "", "", all), model.search(&["rover"]));
        assert_eq!(model.search(&["rover"]), ["match:1", "match:3", "player:9"]);
        assert_eq!(
            search(&stage, "Playing, in the FINAL!", "", "", all),
            model.search(&["play", "final"]),
            "all words, in any form"
        );
        assert_eq!(search(&stage, "rover", "player", "", all), ["player:9"]);
        assert_eq!(search(&stage, "rover", "match", "leeds", all), ["match:1"]);
        assert_eq!(search(&stage, "rover", "", "", (1, 1)), ["match:3"]);
        assert_eq!(search(&stage, "rover offside", "", "", all), [""; 0]);
        let names: BTreeSet<&str> = FIXTURE.iter().map(|known| known.0).collect();
        assert_eq!(
            search(&stage, "of the", "", "", all),
            names.iter().copied().collect::<Vec<_>>(),
            "without words all, by name"
        );
        assert_eq!(search(&stage, "", "news", "", all), ["news:1", "news:2"]);
        stage.store.close();
    });
}

#[test]
fn what_is_said_of_a_channel_can_be_changed_and_taken_back() {
    on_both("describe", |settings| {
        let stage = Stage::open(settings);
        fill(&stage);
        fill(&stage);
        let of = |channel: &str| find(&stage, Search::Channel(channel.into()));
        assert_eq!(of("match:1").expect("it is known")[0].description, description(&FIXTURE[0]));
        let changed = ChannelDescription {
            channel: "match:1".into(),
            title: "It's \"off\" % _ ü".into(),
            ..ChannelDescription::default()
        };
        done(|done| stage.store.describe(changed.clone(), done));
        assert_eq!(of("match:1").expect("it is known")[0].description, changed);
        assert_eq!(
            search(&stage, "rovers", "", "", (9, 0)),
            ["match:3", "player:9"],
            "it says nothing of rovers any more"
        );
        done(|done| stage.store.forget("match:1".into(), done));
        done(|done| stage.store.forget("never:1".into(), done));
        assert_eq!(of("match:1"), Err(StoreRefusal::NotFound));
        for (channel, ..) in &FIXTURE[1..] {
            done(|done| stage.store.forget((*channel).into(), done));
        }
        assert_eq!(search(&stage, "", "", "", (9, 0)), [""; 0]);
        fill(&stage);
        let expected = Model::new().similar("match:1");
        let results = similar(&stage, "match:1", 100).expect("it is known");
        assert!(
            results.iter().zip(&expected).all(|(a, b)| (a.1 - b.1).abs() < 1e-9),
            "the counts of words came down to nothing meanwhile"
        );
        stage.store.close();
    });
}
