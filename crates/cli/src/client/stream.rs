//! A blocking stream to a server, with or without TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::Result;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::tls::{explain, server_name};
use super::url::ServerUrl;

/// An open connection to a server.
pub(crate) enum ClientStream {
    /// A connection without TLS.
    Plain(TcpStream),
    /// A connection with TLS after the handshake.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl ClientStream {
    /// Connects, and performs the TLS handshake if a configuration is given.
    ///
    /// # Errors
    /// When no address answers in time, or TLS fails. The error is a `TlsRefusal` if the server does not use TLS or its
    /// certificate is not trusted.
    pub(crate) fn connect(url: &ServerUrl, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let mut stream = url.connect()?;
        let Some(config) = tls else { return Ok(ClientStream::Plain(stream)) };
        let mut session = ClientConnection::new(Arc::clone(config), server_name(url)?)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).map_err(|error| explain(error, url))?;
        }
        Ok(ClientStream::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// The TCP stream of the connection.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            ClientStream::Plain(stream) => stream,
            ClientStream::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for ClientStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientStream::Plain(stream) => stream.read(into),
            ClientStream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ClientStream::Plain(stream) => stream.write(bytes),
            ClientStream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ClientStream::Plain(stream) => stream.flush(),
            ClientStream::Tls(stream) => stream.flush(),
        }
    }
}
