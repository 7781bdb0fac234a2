//! Settings of the edge of the server: TLS, proxies in front of it, and connections.

use std::path::PathBuf;

use clap::Args;

use crate::domain::trusted_proxies::TrustedProxies;

#[derive(Debug, Clone, Args)]
pub struct EdgeArgs {
    /// PEM file of the server's certificate, followed by those that lead to its authority. The server then
    /// speaks only TLS. The file is loaded again when it changes [default: none, plain HTTP].
    #[arg(long, env = "WAYBILL_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of the private key of `--tls-cert` [default: none, plain HTTP].
    #[arg(long, env = "WAYBILL_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Networks of proxies whose `Forwarded` and `X-Forwarded-For` are believed: CIDRs, separated by commas.
    #[arg(long, env = "WAYBILL_TRUSTED_PROXIES", default_value = "none", value_parser = parse_proxies)]
    pub trusted_proxies: TrustedProxies,

    /// Maximum number of open connections per client address; further ones are closed. 0 is no limit. Loopback
    /// and trusted proxies are exempt.
    #[arg(long, env = "WAYBILL_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 2_000)]
    pub max_connections_per_address: usize,
}

fn parse_proxies(text: &str) -> Result<TrustedProxies, String> {
    if text == "none" { Ok(TrustedProxies::default()) } else { text.parse() }
}
