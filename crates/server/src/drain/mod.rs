//! The drain of a node: the cost of a client for the node that takes it, how fast clients are asked to leave, and the
//! shared state of a drain. The code is pure apart from [`NodeDrain`], which only holds state.

mod connect_cost;
mod node_drain;
mod plan;

pub(crate) use connect_cost::LoadReading;
pub(crate) use node_drain::NodeDrain;
pub(crate) use plan::{DrainForecast, DrainPlan, DrainTerms};
