//! A database that is reached through TLS. Its certificate, and that of its authority, are made in the test.

use std::net::TcpListener;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use waybill::store::connection::connect::connect;

use crate::support::foreign::{ForeignPostgres, put_file};
use crate::support::process::{Process, waybill};
use crate::support::{ClusterDir, HeldTable, Reply, database};

/// Rules of access: the tests look at the database through its socket; whatever comes by TCP must come by TLS.
const ONLY_TLS: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

/// The same, and clients must show a certificate for their role.
const CLIENT_CERTIFICATE: &str = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n";

/// Whatever comes by TCP must come without TLS.
const ONLY_PLAIN: &str = "local all all trust\nhostnossl all all 127.0.0.1/32 scram-sha-256\n";

/// Both ways.
const ANY: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// Whether the connection that runs this is encrypted: 1 or 0.
const IS_ENCRYPTED: &str = "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";

/// An authority that issues certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate"))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate with a common name, for host names. Returns it and its key.
    fn issue(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("a certificate").pem(), key.serialize_pem())
    }
}

/// A PostgreSQL whose certificate for `localhost` comes from `authority`.
struct Encrypted {
    postgres: ForeignPostgres,
    authority: Authority,
    /// Files for the parameters of addresses.
    files: ClusterDir,
}

impl Encrypted {
    async fn start(rules: &str, settings: &[&str]) -> Self {
        let authority = Authority::new("an authority");
        let (certificate, key) = authority.issue("the database", &["localhost"]);
        let cluster_dir = ClusterDir::with_cluster();
        put_file(&cluster_dir, "server.crt", &certificate);
        put_file(&cluster_dir, "server.key", &key);
        put_file(&cluster_dir, "root.crt", &authority.pem());
        put_file(&cluster_dir, "pg_hba.conf", rules);
        // The system does not give a port that was just closed to another process.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).expect("a port").port();
        let settings = [settings, &["listen_addresses=127.0.0.1"]].concat();
        let postgres = ForeignPostgres::start_at(cluster_dir, port, &settings, &[]).await;
        let encrypted = Encrypted { postgres, authority, files: ClusterDir::new() };
        encrypted.file("ca.pem", &encrypted.authority.pem());
        encrypted.file("other.pem", &Authority::new("another authority").pem());
        encrypted
    }

    /// Starts it with TLS.
    async fn with_tls(rules: &str) -> Self {
        Self::start(rules, &["ssl=on", "ssl_ca_file=root.crt"]).await
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.root().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Returns the address by TCP in both spellings, with parameters in which `@` stands for the folder of the
    /// files.
    fn addresses(&self, host: &str, parameters: &[&str]) -> [String; 2] {
        let url = self.postgres.url_by_tcp(host);
        let folder = self.files.root().display().to_string();
        let parameters: Vec<String> = parameters.iter().map(|text| text.replace('@', &folder)).collect();
        let parts: Vec<&str> = url.trim_start_matches("postgres://").split([':', '@', '/']).collect();
        let [user, password, host, port, name] = parts[..] else { panic!("{url}") };
        let pairs = format!("host={host} port={port} user={user} password='{password}' dbname={name}");
        [format!("{url}?{}", parameters.join("&")), format!("{pairs} {}", parameters.join(" "))]
    }

    /// Asserts that both spellings lead to a connection that is encrypted, or is not.
    async fn assert_connects(&self, host: &str, parameters: &[&str], is_encrypted: bool) {
        for address in self.addresses(host, parameters) {
            assert_eq!(database::count(&address, IS_ENCRYPTED).await, i64::from(is_encrypted), "{address}");
        }
    }

    /// Asserts that neither spelling leads to a connection, for a reason with this text.
    async fn assert_refused(&self, host: &str, parameters: &[&str], reason: &str) {
        for address in self.addresses(host, parameters) {
            match connect(&address, "").await {
                Ok(_) => panic!("{address} is accepted"),
                Err(error) => assert!(error.to_string().contains(reason), "{address}: {error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verified_connection_needs_the_right_authority_and_the_right_host() {
    let database = Encrypted::with_tls(ANY).await;
    database.assert_connects("localhost", &["sslmode=verify-full", "sslrootcert=@/ca.pem"], true).await;
    database.assert_connects("localhost", &["sslmode=verify-ca", "sslrootcert=@/ca.pem"], true).await;
    // The certificate is not for this host.
    database.assert_connects("127.0.0.1", &["sslmode=verify-ca", "sslrootcert=@/ca.pem"], true).await;
    let wrong_host = "certificate not valid for name";
    database.assert_refused("127.0.0.1", &["sslmode=verify-full", "sslrootcert=@/ca.pem"], wrong_host).await;
    for mode in ["sslmode=verify-full", "sslmode=verify-ca", "sslmode=require"] {
        database.assert_refused("localhost", &[mode, "sslrootcert=@/other.pem"], "UnknownIssuer").await;
    }
    // The system does not know the authority.
    for mode in ["sslmode=verify-full", "sslmode=verify-ca", "sslrootcert=system"] {
        database.assert_refused("localhost", &[mode], "").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_modes_mean_what_they_mean_to_libpq() {
    let database = Encrypted::with_tls(ANY).await;
    for (mode, is_encrypted) in [
        ("application_name=x", true),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
        ("sslmode=allow", false),
        ("sslmode=disable", false),
    ] {
        for host in ["localhost", "127.0.0.1"] {
            database.assert_connects(host, &[mode], is_encrypted).await;
        }
    }
    // With an authority, even these modes verify; they then do without TLS.
    database.assert_connects("localhost", &["sslmode=prefer", "sslrootcert=@/ca.pem"], true).await;
    database.assert_connects("localhost", &["sslmode=prefer", "sslrootcert=@/other.pem"], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_modes_that_have_a_choice_do_what_the_database_allows() {
    let database = Encrypted::with_tls(ONLY_TLS).await;
    for mode in ["sslmode=allow", "sslmode=prefer"] {
        database.assert_connects("localhost", &[mode], true).await;
    }
    database.assert_refused("localhost", &["sslmode=disable"], "no encryption").await;
    drop(database);
    let database = Encrypted::with_tls(ONLY_PLAIN).await;
    for mode in ["sslmode=allow", "sslmode=prefer"] {
        database.assert_connects("localhost", &[mode], false).await;
    }
    database.assert_refused("localhost", &["sslmode=require"], "SSL encryption").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_tls_is_used_only_if_the_mode_allows_it() {
    let database = Encrypted::start(ANY, &["ssl=off"]).await;
    for mode in ["sslmode=disable", "sslmode=allow", "sslmode=prefer"] {
        database.assert_connects("localhost", &[mode], false).await;
    }
    for mode in ["sslmode=require", "sslmode=verify-ca", "sslmode=verify-full"] {
        database.assert_refused("localhost", &[mode, "sslrootcert=@/ca.pem"], "does not offer TLS").await;
    }
    // A socket on the same machine needs no TLS, and has none.
    let by_socket = format!("{}?sslmode=require", database.postgres.url());
    assert_eq!(database::count(&by_socket, IS_ENCRYPTED).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_may_ask_for_a_certificate_of_the_client() {
    let database = Encrypted::with_tls(CLIENT_CERTIFICATE).await;
    let (certificate, key) = database.authority.issue("waybill", &[]);
    let (strange, strange_key) = Authority::new("another authority").issue("waybill", &[]);
    for (name, text) in [("c.pem", &certificate), ("k.pem", &key), ("s.pem", &strange), ("sk.pem", &strange_key)] {
        database.file(name, text);
    }
    let verified = ["sslmode=verify-full", "sslrootcert=@/ca.pem"];
    let with = |more: &[&'static str]| [&verified[..], more].concat();
    database.assert_connects("localhost", &with(&["sslcert=@/c.pem", "sslkey=@/k.pem"]), true).await;
    database.assert_connects("localhost", &["sslmode=require", "sslcert=@/c.pem", "sslkey=@/k.pem"], true).await;
    database.assert_refused("localhost", &verified, "valid client certificate").await;
    database.assert_refused("localhost", &with(&["sslcert=@/s.pem", "sslkey=@/sk.pem"]), "").await;
    database.assert_refused("localhost", &with(&["sslcert=@/c.pem", "sslkey=@/sk.pem"]), "c.pem").await;
    database.assert_refused("localhost", &with(&["sslcert=@/none", "sslkey=@/k.pem"]), "/none").await;
}

fn serve(address: &str) -> Command {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.env("DATABASE_URL", address);
    command
}

/// The database refuses connections without TLS, so migrations, requests, maintenance and notifications all
/// use it.
#[tokio::test(flavor = "multi_thread")]
async fn all_connections_of_a_server_use_tls_and_errors_are_recognised() {
    let encrypted = Encrypted::with_tls(ONLY_TLS).await;
    let socket = encrypted.postgres.url();
    for address in encrypted.addresses("localhost", &["sslmode=verify-full", "sslrootcert=@/ca.pem"]) {
        let server = Process::start(serve(&address));
        let event = json!({"title": "t", "tags": "a"});
        server.app.publish(event.clone()).await;
        let ours = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'waybill' \
                    AND client_addr IS NOT NULL";
        assert!(database::count(&socket, &format!("SELECT count(*) {ours} AND ssl")).await > 2);
        assert_eq!(database::count(&socket, &format!("SELECT count(*) {ours} AND NOT ssl")).await, 0);
        let listens = format!("SELECT count(*) {ours} AND ssl AND query LIKE 'LISTEN waybill%'");
        assert_eq!(database::count(&socket, &listens).await, 1);

        let mut held = HeldTable::lock(&socket, "waybill.events").await;
        let request = server.app.client.post(format!("{}/events", server.app.base)).json(&event);
        let publish = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
        held.terminate_blocked().await;
        publish.await.expect("no panic").problem(503, "database_unavailable");
        held.unlock().await;
        server.app.publish(event).await;
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_start_with_a_certificate_that_it_cannot_verify() {
    let database = Encrypted::with_tls(ANY).await;
    for (host, parameters, reason) in [
        ("localhost", ["sslmode=verify-full", "sslrootcert=@/other.pem"], "UnknownIssuer"),
        ("127.0.0.1", ["sslmode=verify-full", "sslrootcert=@/ca.pem"], "not valid for name"),
        ("localhost", ["sslmode=verify-full", "sslrootcert=@/none.pem"], "/none.pem: "),
        ("localhost", ["sslmode=verify-all", "sslrootcert=@/ca.pem"], "sslmode must be"),
    ] {
        for address in database.addresses(host, &parameters) {
            let ended = Process::spawn(serve(&address)).err().expect("it does not start");
            assert!(ended.stderr.contains(reason), "{reason}: {}", ended.stderr);
            assert!(!ended.stderr.contains("waiting for the database"), "{}", ended.stderr);
        }
    }
}
