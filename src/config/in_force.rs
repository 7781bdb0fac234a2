//! The settings that a server runs with, for people to read: flag, variable, value, default, and where the value is from.
//!
//! They are written down while the command line is parsed, because only then it is known who has set what. No secret is
//! written down: [`shown`] leaves out what may be one.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::ServeArgs;
use super::secrets::KEY_VARIABLE;

/// What stands for a value that is not shown.
const HIDDEN: &str = "set, not shown";

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Flag,
    Variable,
}

/// One setting of a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingInForce {
    /// The flag, such as `--bind`, or the name of a variable that has no flag.
    pub name: String,
    pub variable: Option<String>,
    /// `None` if it is not set.
    pub value: Option<String>,
    /// What happens without it, as the help says.
    pub default: Option<String>,
    pub origin: Origin,
    pub description: String,
}

impl SettingInForce {
    /// Returns whether the value is another one than without this setting.
    pub(crate) fn is_changed(&self) -> bool {
        self.origin != Origin::Default && self.value != self.default
    }
}

/// All settings of `waybill serve`, in the order of its help.
#[derive(Debug, Clone, Default)]
pub struct SettingsInForce(Vec<SettingInForce>);

impl SettingsInForce {
    pub(crate) fn as_slice(&self) -> &[SettingInForce] {
        &self.0
    }
}

/// It has no flags of its own. In a struct of arguments it must be the first field: parsing takes the values of later
/// fields out of what it reads.
impl Args for SettingsInForce {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for SettingsInForce {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = ServeArgs::augment_args(Command::new("serve"));
        let mut settings: Vec<SettingInForce> =
            command.get_arguments().filter_map(|arg| setting(arg, matches)).collect();
        settings.push(key_variable());
        Ok(SettingsInForce(settings))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn setting(arg: &Arg, matches: &ArgMatches) -> Option<SettingInForce> {
    let id = arg.get_id().as_str();
    let name = format!("--{}", arg.get_long()?);
    let raw = matches.try_get_raw(id).ok().flatten();
    let value = raw.and_then(|mut values| values.next()).map(|value| value.to_string_lossy().into_owned());
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // Defaults that depend on the machine are a part of the help.
    let (description, told) = match help.split_once("[default: ") {
        Some((description, told)) => (description.trim(), told.split_once(']').map(|(default, _)| default)),
        None => (help.as_str(), None),
    };
    let default = arg.get_default_values().first().map(|value| value.to_string_lossy());
    let is_switch = !arg.get_action().takes_values();
    let default = default.as_deref().or(told).or(is_switch.then_some("false"));
    Some(SettingInForce {
        value: value.filter(|value| !value.is_empty()).map(|value| shown(&name, value)),
        variable: arg.get_env().map(|name| name.to_string_lossy().into_owned()),
        default: default.map(str::to_owned),
        origin: match matches.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::Flag,
            Some(ValueSource::EnvVariable) => Origin::Variable,
            _ => Origin::Default,
        },
        description: description.to_owned(),
        name,
    })
}

/// Returns the setting of the variable that holds keys and has no flag. Its value is never shown.
fn key_variable() -> SettingInForce {
    let is_set = std::env::var_os(KEY_VARIABLE).is_some_and(|value| !value.is_empty());
    SettingInForce {
        name: KEY_VARIABLE.to_owned(),
        variable: None,
        value: is_set.then(|| HIDDEN.to_owned()),
        default: Some("none".to_owned()),
        origin: if is_set { Origin::Variable } else { Origin::Default },
        description: "The keys that encrypt webhook secrets, instead of --secret-key-file.".to_owned(),
    }
}

/// Returns a value without what may be a secret. Of an address, the user, the host and the path are shown, if it is
/// certain that they are no part of a password.
fn shown(name: &str, value: String) -> String {
    let is_address = name == "--database-url" || value.contains("://") || value.contains('@');
    if is_address { without_password(&value).unwrap_or_else(|| HIDDEN.to_owned()) } else { value }
}

/// Returns an address with dots in the place of its password, or `None` if a password may stand elsewhere.
pub(crate) fn without_password(address: &str) -> Option<String> {
    let mut url = url::Url::parse(address).ok()?;
    if !url.has_host() || may_hide_password(&url) {
        return None;
    }
    if url.password().is_some() {
        url.set_password(Some("PASSWORD")).ok()?;
    }
    Some(url.to_string())
}

/// Returns whether a password may stand where it is not masked: as `password=` in the query, or in other parts because
/// it has a `?`, `#` or `/` that is not escaped.
pub(crate) fn may_hide_password(url: &url::Url) -> bool {
    url.query().is_some() || url.fragment().is_some() || url.path().contains('@')
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{Cli, Command as Verb};

    fn settings(flags: &[&str]) -> Vec<SettingInForce> {
        let cli = Cli::parse_from(["waybill", "serve"].iter().chain(flags));
        match cli.command {
            Verb::Serve(args) => args.in_force.0,
            _ => unreachable!("the flags say serve"),
        }
    }

    fn find<'a>(settings: &'a [SettingInForce], name: &str) -> &'a SettingInForce {
        settings.iter().find(|setting| setting.name == name).unwrap()
    }

    #[test]
    fn every_flag_has_its_value_its_default_and_its_description() {
        let all = settings(&["--http-workers", "3", "--retention=30d", "--open", "--bind", "127.0.0.1:0"]);
        let workers = find(&all, "--http-workers");
        assert_eq!((workers.value.as_deref(), workers.default.as_deref()), (Some("3"), Some("2")));
        assert!(workers.is_changed() && workers.origin == Origin::Flag);
        assert_eq!(workers.variable.as_deref(), Some("WAYBILL_HTTP_WORKERS"));
        assert!(!find(&all, "--retention").is_changed(), "as it is without the flag");
        assert!(find(&all, "--open").is_changed() && !find(&all, "--open-metrics").is_changed());
        let cores = find(&all, "--batches-at-once");
        assert_eq!((cores.value.as_deref(), cores.default.as_deref()), (None, Some("the number of cores")));
        assert!(all.iter().all(|setting| !setting.description.is_empty() && !setting.description.contains("[default")));
        assert!(all.len() > 40, "{}", all.len());
    }

    #[test]
    fn no_password_is_written_down() {
        for url in [
            "postgres://a:1234@b/c",
            "postgres://a@b/c?password=1234",
            "postgres:///c?host=b&user=a&password=1234",
            "postgres://a:1#234@b/c",
            "postgres://a:1/1234@b/c",
            "postgres://a:1234@b,d/c",
            "host=b user=a password=1234",
        ] {
            let all = format!("{:?}", settings(&["--database-url", url]));
            assert!(!all.contains("234"), "{url}: {all}");
        }
        let all =
            settings(&["--database-url", "postgres://a:1234@b/c", "--webhook-proxy", "http://me:1234@proxy:8080"]);
        assert_eq!(find(&all, "--database-url").value.as_deref(), Some("postgres://a:PASSWORD@b/c"));
        assert_eq!(find(&all, "--webhook-proxy").value.as_deref(), Some("http://me:PASSWORD@proxy:8080/"));
        assert_eq!(
            find(&settings(&["--webhook-proxy", "me:1234@proxy"]), "--webhook-proxy").value.as_deref(),
            Some(HIDDEN)
        );
    }
}
