//! The address of a database, in both spellings of libpq: `postgres://host/name?sslmode=require` and
//! `host=… dbname=… sslmode=require`.
//!
//! The driver parses both, but knows only some values of `sslmode`, and none of `sslrootcert`, `sslcert`
//! and `sslkey`. They are taken out of the text here, and mean what they mean to libpq.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// The address of a database.
#[derive(Debug)]
pub(crate) struct DatabaseAddress {
    /// The settings of the driver.
    pub config: Config,
    pub tls: TlsSettings,
}

/// The settings of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TlsSettings {
    pub mode: SslMode,
    pub roots: Roots,
    /// The files of the client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Whether to encrypt, and what to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SslMode {
    Disable,
    /// First without TLS, then with it.
    Allow,
    /// First with TLS, then without it.
    #[default]
    Prefer,
    Require,
    /// The certificate must lead to a trusted authority.
    VerifyCa,
    /// It must also be for the host of the address.
    VerifyFull,
}

/// The authorities to trust.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Roots {
    /// No file is given: the system's authorities if the mode asks for verification, otherwise none.
    #[default]
    NotGiven,
    /// `sslrootcert=system`.
    System,
    File(PathBuf),
}

/// Why an address cannot be used. The texts do not repeat the address, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "DATABASE_URL is not a PostgreSQL URL, or has a parameter that Waybill does not know; \
         expected the form postgres://user:password@host:5432/name"
    )]
    Malformed,
    #[error("DATABASE_URL: {0}")]
    Tls(String),
}

/// A parameter of an address, and where it stands in the text.
struct Parameter {
    name: String,
    value: String,
    place: Range<usize>,
}

impl DatabaseAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, AddressError> {
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let parameters = if is_url { read_query(text) } else { read_pairs(text) };
        let mut kept = text.to_owned();
        let mut found = TlsParameters::default();
        for parameter in parameters.ok_or(AddressError::Malformed)?.into_iter().rev() {
            if found.take(&parameter) {
                kept.replace_range(parameter.place, "");
            }
        }
        let config: Config = kept.parse().map_err(|_| AddressError::Malformed)?;
        Ok(DatabaseAddress { config, tls: found.settings().map_err(AddressError::Tls)? })
    }

    /// Returns whether the address names a host.
    pub(crate) fn has_host(&self) -> bool {
        !self.config.get_hosts().is_empty() || !self.config.get_hostaddrs().is_empty()
    }

    /// Returns the address as variables of libpq, for programs that use it.
    pub(crate) fn libpq_variables(&self, application: &str) -> Vec<(&'static str, OsString)> {
        let config = &self.config;
        let list = |values: Vec<String>| OsString::from(values.join(","));
        let hosts = config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        });
        let hostaddrs: Vec<String> = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
        let text = |value: Option<&str>| value.map(OsString::from);
        let attributes = match config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => Some("read-write".into()),
            TargetSessionAttrs::ReadOnly => Some("read-only".into()),
            _ => None,
        };
        let seconds = config.get_connect_timeout().map(|timeout| timeout.as_secs().max(1).to_string().into());
        let password = config.get_password().map(|bytes| OsStr::from_bytes(bytes).to_owned());
        let own = [
            ("PGHOST", Some(list(hosts.collect()))),
            ("PGHOSTADDR", Some(list(hostaddrs)).filter(|value| !value.is_empty())),
            ("PGPORT", Some(list(ports)).filter(|value| !value.is_empty())),
            ("PGUSER", text(config.get_user())),
            ("PGPASSWORD", password),
            ("PGDATABASE", text(config.get_dbname().or(config.get_user()))),
            ("PGOPTIONS", text(config.get_options())),
            ("PGTARGETSESSIONATTRS", attributes),
            ("PGCONNECT_TIMEOUT", seconds),
            ("PGAPPNAME", Some(application.into())),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        own.chain(self.tls.libpq_variables()).collect()
    }
}

impl TlsSettings {
    fn libpq_variables(&self) -> Vec<(&'static str, OsString)> {
        let mode = match self.mode {
            SslMode::Disable => "disable",
            SslMode::Allow => "allow",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        };
        let mut variables = vec![("PGSSLMODE", mode.into())];
        let verifies = matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyFull);
        match &self.roots {
            Roots::File(file) => variables.push(("PGSSLROOTCERT", file.into())),
            // libpq knows the system's authorities only since version 16, so their file is named.
            Roots::NotGiven | Roots::System if verifies => variables.push(("PGSSLROOTCERT", system_roots())),
            Roots::NotGiven | Roots::System => {}
        }
        if let Some((certificate, key)) = &self.client {
            variables.extend([("PGSSLCERT", certificate.into()), ("PGSSLKEY", key.into())]);
        }
        variables
    }
}

/// Returns the file of the system's authorities, or libpq's word for them if it is in none of the usual places.
fn system_roots() -> OsString {
    const USUAL_FILES: &[&str] =
        &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    let named = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty());
    let usual = || USUAL_FILES.iter().find(|file| Path::new(file).is_file()).map(OsString::from);
    named.or_else(usual).unwrap_or_else(|| "system".into())
}

/// The parameters of an address that are about TLS.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl TlsParameters {
    /// Takes a parameter if it is about TLS. Parameters are taken from the last to the first, and of two with
    /// the same name the last one counts.
    fn take(&mut self, parameter: &Parameter) -> bool {
        let field = match parameter.name.as_str() {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return false,
        };
        field.get_or_insert_with(|| parameter.value.clone());
        true
    }

    fn settings(self) -> Result<TlsSettings, String> {
        // An empty value counts as unset.
        let given = |value: Option<String>| value.filter(|value| !value.is_empty());
        let roots = match given(self.root) {
            None => Roots::NotGiven,
            Some(system) if system == "system" => Roots::System,
            Some(file) => Roots::File(file.into()),
        };
        let mode = match given(self.mode).as_deref() {
            None if roots == Roots::System => SslMode::VerifyFull,
            None => SslMode::default(),
            Some(mode) => parse_mode(mode)?,
        };
        if roots == Roots::System && mode != SslMode::VerifyFull {
            return Err("sslrootcert=system needs sslmode=verify-full".into());
        }
        let client = match (given(self.certificate), given(self.key)) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (Some(_), None) => return Err("sslcert needs sslkey, the file of its private key".into()),
            (None, Some(_)) => return Err("sslkey needs sslcert, the file of its certificate".into()),
        };
        Ok(TlsSettings { mode, roots, client })
    }
}

fn parse_mode(mode: &str) -> Result<SslMode, String> {
    Ok(match mode {
        "disable" => SslMode::Disable,
        "allow" => SslMode::Allow,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => return Err("sslmode must be disable, allow, prefer, require, verify-ca or verify-full".into()),
    })
}

/// Reads the query of a URL. Each place includes the `&` after the parameter, if there is one.
fn read_query(url: &str) -> Option<Vec<Parameter>> {
    let Some(question_mark) = url.find('?') else { return Some(Vec::new()) };
    let mut at = question_mark + 1;
    let mut parameters = Vec::new();
    for pair in url[at..].split_inclusive('&') {
        let place = at..at + pair.len();
        at = place.end;
        let Some((name, value)) = pair.trim_end_matches('&').split_once('=') else { continue };
        parameters.push(Parameter { name: decode(name)?, value: decode(value)?, place });
    }
    Some(parameters)
}

/// Decodes `%2F` and the like. Returns `None` if the result is no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Reads pairs such as `host=localhost password='two words'`. Spaces may surround the `=`. A backslash
/// escapes the next character.
fn read_pairs(text: &str) -> Option<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut characters = text.char_indices().peekable();
    loop {
        while characters.next_if(|(_, character)| character.is_whitespace()).is_some() {}
        let Some((start, _)) = characters.peek().copied() else { return Some(parameters) };
        let mut name = String::new();
        while let Some((_, character)) = characters.next_if(|(_, c)| *c != '=' && !c.is_whitespace()) {
            name.push(character);
        }
        while characters.next_if(|(_, character)| character.is_whitespace()).is_some() {}
        characters.next_if(|(_, character)| *character == '=')?;
        while characters.next_if(|(_, character)| character.is_whitespace()).is_some() {}
        let is_quoted = characters.next_if(|(_, character)| *character == '\'').is_some();
        let mut value = String::new();
        let is_closed = loop {
            match characters.next_if(|(_, character)| is_quoted || !character.is_whitespace()) {
                Some((_, '\'')) if is_quoted => break true,
                Some((_, '\\')) => value.push(characters.next()?.1),
                Some((_, character)) => value.push(character),
                None => break !is_quoted,
            }
        };
        let end = characters.peek().map_or(text.len(), |(position, _)| *position);
        if !is_closed {
            return None;
        }
        parameters.push(Parameter { name, value, place: start..end });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(text: &str) -> TlsSettings {
        DatabaseAddress::parse(text).unwrap().tls
    }

    fn settings(mode: SslMode, roots: Roots) -> TlsSettings {
        TlsSettings { mode, roots, client: None }
    }

    #[test]
    fn both_spellings_mean_the_same() {
        for (query, pairs, expected) in [
            ("", "", settings(SslMode::Prefer, Roots::NotGiven)),
            ("?sslmode=disable", "sslmode=disable", settings(SslMode::Disable, Roots::NotGiven)),
            ("?sslmode=allow", "sslmode = allow", settings(SslMode::Allow, Roots::NotGiven)),
            ("?sslmode=require", "sslmode='require'", settings(SslMode::Require, Roots::NotGiven)),
            (
                "?sslmode=disable&sslmode=require",
                "sslmode=disable sslmode=require",
                settings(SslMode::Require, Roots::NotGiven),
            ),
            (
                "?connect_timeout=3&sslmode=verify-ca&sslrootcert=%2Fa%20b",
                "connect_timeout=3 sslmode=verify-ca sslrootcert='/a b'",
                settings(SslMode::VerifyCa, Roots::File("/a b".into())),
            ),
            ("?sslrootcert=/a%27b", r"sslrootcert=/a\'b", settings(SslMode::Prefer, Roots::File("/a'b".into()))),
            ("?sslrootcert=system", "sslrootcert=system", settings(SslMode::VerifyFull, Roots::System)),
            (
                "?sslmode=verify-full&sslcert=/c&sslkey=/k&application_name=x",
                "sslmode=verify-full sslcert=/c sslkey=/k application_name=x",
                TlsSettings {
                    client: Some(("/c".into(), "/k".into())),
                    ..settings(SslMode::VerifyFull, Roots::NotGiven)
                },
            ),
        ] {
            assert_eq!(tls(&format!("postgres://me:word@h:1/d{query}")), expected, "{query}");
            assert_eq!(tls(&format!("postgresql://me:word@h:1/d{query}")), expected, "{query}");
            assert_eq!(tls(&format!("host=h port=1 {pairs}")), expected, "{pairs}");
            assert_eq!(tls(&format!("{pairs} host=h")), expected, "{pairs}");
        }
    }

    #[test]
    fn the_other_parameters_are_left_to_the_driver() {
        let word = "a ?'\\sslmode=disable";
        for text in [
            "postgres://me:a%20%3F'%5Csslmode=disable@h:1/d?sslmode=require&connect_timeout=3",
            "postgres://me:a%20%3F'%5Csslmode=disable@h:1/d?connect_timeout=3&sslmode=require",
            r"host=h user=me sslmode=require password='a ?\'\\sslmode=disable' dbname=d port=1 connect_timeout=3",
        ] {
            let DatabaseAddress { config, tls } = DatabaseAddress::parse(text).unwrap();
            assert_eq!(tls.mode, SslMode::Require, "{text}");
            assert_eq!(config.get_hosts(), [Host::Tcp("h".into())], "{text}");
            assert_eq!((config.get_user(), config.get_dbname()), (Some("me"), Some("d")), "{text}");
            assert_eq!(config.get_password(), Some(word.as_bytes()), "{text}");
            assert_eq!(config.get_connect_timeout().map(std::time::Duration::as_secs), Some(3), "{text}");
        }
    }

    #[test]
    fn what_libpq_refuses_is_refused_without_repeating_the_address() {
        for (query, part) in [
            ("sslmode=verify", "sslmode must be"),
            ("sslmode=REQUIRE", "sslmode must be"),
            ("sslrootcert=system&sslmode=require", "verify-full"),
            ("sslcert=/c", "sslkey"),
            ("sslkey=/k", "sslcert"),
            ("sslcrl=/c", "does not know"),
            ("sslmode=%zz", "not a PostgreSQL URL"),
        ] {
            let text = format!("postgres://me:secret@h/d?{query}");
            let error = DatabaseAddress::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{query}: {error}");
        }
        for text in ["postgres//user:word@localhost", "localhost", "host='x", "host=h sslmode"] {
            assert_eq!(DatabaseAddress::parse(text).err(), Some(AddressError::Malformed), "{text}");
        }
    }

    fn variables(text: &str) -> Vec<String> {
        let variables = DatabaseAddress::parse(text).unwrap().libpq_variables("x");
        variables.into_iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect()
    }

    #[test]
    fn an_address_becomes_variables_of_libpq() {
        assert_eq!(
            variables("postgres://me:a%20b@%2Frun%2Fpg:5433/db"),
            [
                "PGHOST=/run/pg",
                "PGPORT=5433",
                "PGUSER=me",
                "PGPASSWORD=a b",
                "PGDATABASE=db",
                "PGAPPNAME=x",
                "PGSSLMODE=prefer"
            ]
        );
        let several = variables(
            "host=a,b port=1,2 user=me sslmode=verify-full sslrootcert=/r sslcert=/c sslkey=/k connect_timeout=3 \
             target_session_attrs=read-write options='-c x=1'",
        );
        for wanted in [
            "PGHOST=a,b",
            "PGPORT=1,2",
            "PGDATABASE=me",
            "PGOPTIONS=-c x=1",
            "PGTARGETSESSIONATTRS=read-write",
            "PGCONNECT_TIMEOUT=3",
            "PGSSLMODE=verify-full",
            "PGSSLROOTCERT=/r",
            "PGSSLCERT=/c",
            "PGSSLKEY=/k",
        ] {
            assert!(several.iter().any(|variable| variable == wanted), "{wanted} in {several:?}");
        }
    }

    #[test]
    fn a_verified_connection_stays_verified() {
        let verified = variables("postgres://h/d?sslmode=verify-full");
        assert!(verified.iter().any(|variable| variable.starts_with("PGSSLROOTCERT=")), "{verified:?}");
    }

    #[test]
    fn an_address_should_name_a_host() {
        for (text, expected) in [
            ("postgres://user:word@%2Frun%2Fpg:5432/db?sslmode=require", true),
            ("host=localhost user=me", true),
            ("hostaddr=127.0.0.1", true),
            ("user=me", false),
            ("", false),
        ] {
            assert_eq!(DatabaseAddress::parse(text).unwrap().has_host(), expected, "{text}");
        }
    }
}
