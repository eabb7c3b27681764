//! What the embedding program serves on the port for clients: pages with their assets, and its own routes.

mod assets;
mod coding;
mod routes;
mod site;

pub(crate) use assets::Assets;
pub use routes::{RouteFuture, RouteHandler};
pub(crate) use routes::{Routes, whole};
pub use site::{Site, SiteFile};

/// The pages and the routes of a program.
#[derive(Default)]
pub(crate) struct Web {
    pub(crate) assets: Assets,
    pub(crate) routes: Routes,
}

impl Web {
    /// Whether the program serves a path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.assets.has(path) || self.routes.find(path).is_some()
    }

    /// Whether a path has both a file and a handler.
    pub(crate) fn is_doubled(&self, path: &str) -> bool {
        self.assets.has(path) && self.routes.find(path).is_some()
    }

    /// The paths of the program, in any order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.assets.paths().chain(self.routes.paths())
    }
}
