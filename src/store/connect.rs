//! One connection to PostgreSQL: by socket or TCP, plain or by TLS.
//!
//! `sslmode=require`, `verify-ca` and `verify-full` all mean the same here: TLS, with the
//! server's certificate verified against the system's roots. Without one of them the
//! connection is plain.

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncPgConnection;
use diesel_async::SimpleAsyncConnection;
use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Opens a connection, with `setup` (a list of `SET`s) run on it.
pub async fn connect(url: &str, setup: &str) -> ConnectionResult<AsyncPgConnection> {
    let (url, wants_tls) = split_tls(url);
    let mut config: tokio_postgres::Config = url.parse().map_err(bad)?;
    config.application_name("waybill");
    let mut connection = if wants_tls {
        config.ssl_mode(SslMode::Require);
        let (client, driver) = config.connect(verifying_tls()?).await.map_err(bad)?;
        AsyncPgConnection::try_from_client_and_connection(client, driver).await?
    } else {
        config.ssl_mode(SslMode::Disable);
        let (client, driver) = config.connect(NoTls).await.map_err(bad)?;
        AsyncPgConnection::try_from_client_and_connection(client, driver).await?
    };
    connection.batch_execute(setup).await.map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(connection)
}

/// Whether this can be the address of a PostgreSQL at all.
pub fn is_address(url: &str) -> bool {
    let config = split_tls(url).0.parse::<tokio_postgres::Config>();
    config.is_ok_and(|config| !config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty())
}

/// Takes `sslmode` out of the URL (the driver refuses the verifying modes) and says whether
/// TLS is wanted.
fn split_tls(url: &str) -> (String, bool) {
    let Some((base, query)) = url.split_once('?') else {
        return (url.to_owned(), false);
    };
    let mut wants_tls = false;
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.strip_prefix("sslmode=") {
            Some(mode) => {
                wants_tls = matches!(mode, "require" | "verify-ca" | "verify-full");
                false
            }
            None => true,
        })
        .collect();
    if kept.is_empty() { (base.to_owned(), wants_tls) } else { (format!("{base}?{}", kept.join("&")), wants_tls) }
}

fn verifying_tls() -> ConnectionResult<MakeRustlsConnect> {
    // Installing twice is an error that means "already there".
    let _ = rustls::crypto::ring::default_provider().install_default();
    MakeRustlsConnect::with_native_certs()
        .map(|(connector, _)| connector)
        .map_err(|errors| ConnectionError::BadConnection(format!("no usable root certificates: {errors:?}")))
}

fn bad(error: tokio_postgres::Error) -> ConnectionError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    ConnectionError::BadConnection(format!("{error}{}", cause.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{is_address, split_tls};

    #[test]
    fn an_address_names_a_host() {
        assert!(is_address("postgres://user:word@%2Frun%2Fpg:5432/db?sslmode=require"));
        assert!(is_address("host=localhost user=me"));
        assert!(!is_address("postgres//user:word@localhost"));
        assert!(!is_address("localhost"));
        assert!(!is_address(""));
    }

    #[test]
    fn sslmode_is_taken_out_of_the_url() {
        assert_eq!(split_tls("postgres://h/d"), ("postgres://h/d".into(), false));
        assert_eq!(split_tls("postgres://h/d?sslmode=verify-full"), ("postgres://h/d".into(), true));
        assert_eq!(
            split_tls("postgres://h/d?connect_timeout=3&sslmode=disable"),
            ("postgres://h/d?connect_timeout=3".into(), false)
        );
    }
}
