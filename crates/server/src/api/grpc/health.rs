//! The health service of the node (`grpc.health.v1`). A node that is ready reports that it serves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::methods::{CENTRIFUGO, TOUCHLINE};
use crate::api::readiness::health;
use crate::node::Node;

/// How often a watch reads the state of the node.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The health of the node and its services.
pub(super) struct NodeHealth(pub(super) Arc<Node>);

/// Returns the status of a service, or of the whole node; `ServiceUnknown` = the service does not exist.
fn status(node: &Node, service: &str) -> ServingStatus {
    match service {
        "" | CENTRIFUGO | TOUCHLINE if health(node).status() == StatusCode::OK => ServingStatus::Serving,
        "" | CENTRIFUGO | TOUCHLINE => ServingStatus::NotServing,
        _ => ServingStatus::ServiceUnknown,
    }
}

#[tonic::async_trait]
impl Health for NodeHealth {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        match status(&self.0, &request.get_ref().service) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("there is no service of this name")),
            status => Ok(Response::new(HealthCheckResponse { status: status.into() })),
        }
    }

    type WatchStream = HealthWatch;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthWatch>, Status> {
        let mut ticks = interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let service = request.into_inner().service;
        Ok(Response::new(HealthWatch { node: Arc::clone(&self.0), service, told: None, ticks }))
    }
}

/// The changes of a service's status, as a stream without end.
pub(super) struct HealthWatch {
    node: Arc<Node>,
    service: String,
    told: Option<ServingStatus>,
    ticks: Interval,
}

impl Stream for HealthWatch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            ready!(self.ticks.poll_tick(context));
            let now = status(&self.node, &self.service);
            if self.told != Some(now) {
                self.told = Some(now);
                return Poll::Ready(Some(Ok(HealthCheckResponse { status: now.into() })));
            }
        }
    }
}
