//! The lookup of a name, which any thread can execute.

use touchline_protocol::Error;

use super::answer;
use super::request::DirectoryRequest;
use super::scope::Scopes;

impl Scopes {
    /// Answers a request that any thread can execute: the lookup of a name. `None` = only the directory can execute the
    /// request.
    pub fn answer(&self, request: &DirectoryRequest) -> Option<Result<Vec<u8>, Error>> {
        let DirectoryRequest::Lookup { scope, name } = request else { return None };
        let view = self.0.get(usize::from(scope.0)).map(|(_, view)| view);
        Some(
            view.ok_or(Error::NO_SUCH_SCOPE)
                .and_then(|view| view.read(name, answer::entry).ok_or(Error::NOT_REGISTERED)),
        )
    }
}
