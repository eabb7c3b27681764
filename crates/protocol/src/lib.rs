//! The words on the wire: commands, replies, codes, and the WebSocket envelope. Pure: slices in, events or bytes out.
