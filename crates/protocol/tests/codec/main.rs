//! The codecs from outside: a conformance suite of WebSocket framing by sections of RFC 6455, properties, and fuzzing
//! against independent implementations (tungstenite for frames, serde_json for JSON).

mod conformance;
mod fuzz_commands;
mod fuzz_encoders;
mod fuzz_frames;
mod fuzz_requests;
mod kinds;
mod properties;
mod protobuf;
mod random;
mod wire;
