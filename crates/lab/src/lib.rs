//! Load generators, floors and self-checking scenarios: how every figure in docs/performance.md was made.
