//! The header fields of a client's request that hooks pass on to a backend. A connection keeps only these.

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};

use super::headers::Headers;

/// Header fields of a client's request.
pub(crate) type ForwardedHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// The fields of these names, all values of each. None = the request has none of them.
pub(crate) fn forwarded(names: &[HeaderName], headers: &impl Headers) -> Option<ForwardedHeaders> {
    if names.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for name in names {
        let values = headers.values(name).filter_map(|value| HeaderValue::from_bytes(value).ok());
        found.extend(values.map(|value| (name.clone(), value)));
    }
    (!found.is_empty()).then(|| found.into())
}
