//! The steps of one request: the channels of a broadcast, the commands of a batch. They share the time of the request,
//! and several may run at a time.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use touchline_protocol::Error;

use super::operation::{OperationError, RequestNode, yield_sometimes};

/// How many steps of one request run at a time. It is a large part of what a database commits together.
pub(super) const STEPS_AT_A_TIME: usize = 128;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<T> {
    Done(T),
    /// The time of the request was over while the step ran: what it did is not known.
    Unknown,
    /// The time of the request was over before the step began.
    NotBegun,
}

impl<T> Step<T> {
    /// Returns the result of the step.
    ///
    /// # Errors
    /// 100 if it is not known, 111 if the step has not begun.
    pub(super) fn result(self) -> Result<T, OperationError> {
        let over = |error: Error, detail: &'static str| OperationError { detail: Some(detail.into()), ..error.into() };
        match self {
            Step::Done(result) => Ok(result),
            Step::Unknown => {
                Err(over(Error::INTERNAL, "no result within http_server.request_timeout: it may take effect"))
            }
            Step::NotBegun => {
                Err(over(Error::TOO_MANY_REQUESTS, "http_server.request_timeout was over before it began"))
            }
        }
    }
}

/// Runs steps, `at_a_time` of them at a time, until the time of the request is over. They begin in their order. Returns
/// an outcome for each.
pub(super) async fn run_steps<T, F: Future<Output = T>>(
    node: RequestNode<'_>,
    steps: impl ExactSizeIterator<Item = F>,
    at_a_time: usize,
) -> Vec<Step<T>> {
    let mut outcomes: Vec<Step<T>> = std::iter::repeat_with(|| Step::NotBegun).take(steps.len()).collect();
    let mut waiting = steps.enumerate();
    let all = async {
        let (mut running, mut finished) = (FuturesUnordered::new(), 0);
        loop {
            while running.len() < at_a_time
                && let Some((index, step)) = waiting.next()
            {
                outcomes[index] = Step::Unknown;
                running.push(async move { (index, step.await) });
            }
            let Some((index, result)) = running.next().await else { return };
            outcomes[index] = Step::Done(result);
            yield_sometimes(finished).await;
            finished += 1;
        }
    };
    match node.time() {
        Some(limit) => drop(node.clock.time().timeout(limit, all).await),
        None => all.await,
    }
    outcomes
}
