//! The command line of `touchline-lab ladder`.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::numbers::{at_least_one, rate};

/// Options of `ladder`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LadderOptions {
    /// CONNECTIONS:CONCURRENCY of each step, in the order of the steps. If a step has no concurrency, it uses the
    /// concurrency of the next step that has one.
    #[arg(
        long,
        value_name = "STEPS",
        default_value = "1000:5,4000:5,8000:500,16000:2000,32000:2000,65536:8192,100000:32768"
    )]
    pub(crate) steps: LadderSteps,
    /// Publications per step. Each goes to all channels, and the next one follows when all subscribers have it.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10)]
    pub(crate) messages: usize,
    /// Maximum publications per second, in all channels together.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 1.0)]
    pub(crate) rate: f64,
    /// Number of channels that the connections are spread over.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) channels: u32,
    /// Duration of the matches of the last step, seconds. The connections also subscribe to matches, and each match
    /// gets an event every 30 seconds. 0: no matches.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) lasting: u32,
    /// Number of matches of the last step.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) matches: u32,
    /// File for the chart of the steps, SVG.
    #[arg(long, value_name = "FILE", value_parser = crate::output_file::writable)]
    pub(crate) chart: Option<PathBuf>,
}

/// One step: the number of connections, and how many of them are opened at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LadderStep {
    pub(crate) connections: usize,
    pub(crate) concurrency: usize,
}

/// The steps, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LadderSteps(pub(crate) Vec<LadderStep>);

impl FromStr for LadderSteps {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (mut steps, mut next) = (Vec::new(), None);
        for word in text.rsplit(',') {
            let (connections, concurrency) = word.split_once(':').map_or((word, None), |(n, c)| (n, Some(c)));
            let connections = count(connections)?;
            next = match concurrency {
                Some(concurrency) => Some(count(concurrency)?),
                None => next,
            };
            let concurrency = next.with_context(|| {
                format!("no concurrency for {word} or a later step: expected CONNECTIONS:CONCURRENCY, such as 8000:500")
            })?;
            steps.push(LadderStep { connections, concurrency });
        }
        steps.reverse();
        Ok(LadderSteps(steps))
    }
}

fn count(word: &str) -> Result<usize> {
    let count = word.trim().parse().with_context(|| format!("{word:?} is not a count"))?;
    ensure!(count > 0, "a step has at least one connection, and opens at least one at a time");
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_concurrency_takes_the_next_one() {
        let steps = |text: &str| {
            let steps = LadderSteps::from_str(text)?.0;
            anyhow::Ok(steps.iter().map(|step| (step.connections, step.concurrency)).collect::<Vec<_>>())
        };
        assert_eq!(
            steps("1000,4000:5,8000,16000:2000").unwrap(),
            [(1_000, 5), (4_000, 5), (8_000, 2_000), (16_000, 2_000)]
        );
        for wrong in ["", "1000", "1000:5,2000", "0:5", "5:0", "a:5", "5:a", "1:2:3", ",1:2"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }
}
