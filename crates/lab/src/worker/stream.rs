//! A subscriber's socket, perhaps with TLS. The lab trusts whatever certificate it is shown: it talks to a server of its own, on loopback.

use std::io::{Read, Result, Write};
use std::sync::{Arc, LazyLock};

use mio::net::TcpStream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

/// A socket.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// A socket with TLS on it.
    ///
    /// # Errors
    /// When the library refuses.
    pub(super) fn secure(socket: TcpStream) -> anyhow::Result<Self> {
        static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
            let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Trusting));
            Arc::new(builder.with_no_client_auth())
        });
        let name = ServerName::try_from("localhost")?;
        let session = ClientConnection::new(Arc::clone(&CONFIG), name)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket itself.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => {
                // Until the handshake is done the bytes wait in the session, which is what `read` drives.
                let written = stream.conn.writer().write(bytes)?;
                let _ = stream.conn.write_tls(&mut stream.sock);
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Believes everything.
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
