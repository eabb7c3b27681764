//! Channels and sessions: order, history, recovery, presence, permissions. Pure: no runtime, no clock, no randomness, no sockets.
