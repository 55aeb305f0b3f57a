//! TLS to a mail server: with the certificates that the system trusts, or with those of a file.

use std::sync::Arc;

use helve_contract::{Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_rustls::TlsConnector;

/// A connector by the settings.
pub(super) fn connector(ca_file: Option<&str>) -> Result<TlsConnector> {
    let told = |error: &dyn std::fmt::Display| Error::failed(format!("TLS cannot be set up: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| told(&error))?;
    let builder = match ca_file {
        None => builder.with_platform_verifier().map_err(|error| told(&error))?,
        Some(path) => builder.with_root_certificates(roots(path).map_err(|why| told(&format!("{path}: {why}")))?),
    };
    Ok(TlsConnector::from(Arc::new(builder.with_no_client_auth())))
}

fn roots(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}
