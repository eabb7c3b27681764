//! A socket of the lab's clients, with TLS or without. The clients trust any certificate, because their servers are on
//! loopback.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

/// A socket, blocking or not.
pub(crate) enum LabStream<S: Read + Write> {
    Plain(S),
    Tls(Box<StreamOwned<ClientConnection, S>>),
}

impl<S: Read + Write> LabStream<S> {
    /// Puts TLS on a socket. The first reads and writes do the handshake.
    ///
    /// # Errors
    /// When the library refuses the session.
    pub(crate) fn secure(socket: S) -> anyhow::Result<Self> {
        static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| Arc::new(trusting_config()));
        let name = ServerName::try_from("localhost")?;
        let session = ClientConnection::new(Arc::clone(&CONFIG), name)?;
        Ok(LabStream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket itself.
    pub(crate) fn socket(&self) -> &S {
        match self {
            LabStream::Plain(socket) => socket,
            LabStream::Tls(stream) => &stream.sock,
        }
    }

    /// The socket itself, for a poller.
    pub(crate) fn socket_mut(&mut self) -> &mut S {
        match self {
            LabStream::Plain(socket) => socket,
            LabStream::Tls(stream) => &mut stream.sock,
        }
    }
}

impl LabStream<std::net::TcpStream> {
    /// Connects, and does the TLS handshake if there is TLS.
    ///
    /// # Errors
    /// When no server listens, or the other end does not speak TLS.
    pub(crate) fn connect(address: SocketAddr, is_tls: bool) -> anyhow::Result<Self> {
        let socket = std::net::TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        if !is_tls {
            return Ok(LabStream::Plain(socket));
        }
        let mut stream = Self::secure(socket)?;
        if let LabStream::Tls(stream) = &mut stream {
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
        }
        Ok(stream)
    }

    /// The same for a poller.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn into_polled(self) -> Result<LabStream<mio::net::TcpStream>> {
        self.socket().set_nonblocking(true)?;
        Ok(match self {
            LabStream::Plain(socket) => LabStream::Plain(mio::net::TcpStream::from_std(socket)),
            LabStream::Tls(stream) => {
                let (session, socket) = stream.into_parts();
                LabStream::Tls(Box::new(StreamOwned::new(session, mio::net::TcpStream::from_std(socket))))
            }
        })
    }
}

impl<S: Read + Write> Read for LabStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            LabStream::Plain(socket) => socket.read(buffer),
            LabStream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl<S: Read + Write> Write for LabStream<S> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            LabStream::Plain(socket) => socket.write(bytes),
            LabStream::Tls(stream) => {
                // Until the handshake is done the bytes wait in the session, which is what `read` drives.
                let written = stream.conn.writer().write(bytes)?;
                while stream.conn.wants_write() {
                    match stream.conn.write_tls(&mut stream.sock) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        outcome => outcome?,
                    };
                }
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The TLS of a client that trusts any certificate, without ALPN.
pub(crate) fn trusting_config() -> ClientConfig {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Trusting));
    builder.with_no_client_auth()
}

/// Accepts every certificate and signature.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
