//! `docs/configuration.md` and `--help`, compared with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use waybill::config::Cli;

/// One setting: its variable, its default if it has one, and the commands that take it.
#[derive(Debug, PartialEq, Eq, Default)]
struct Setting {
    variable: String,
    default: Option<String>,
    commands: BTreeSet<String>,
}

/// Returns whether a command, or a verb of it, asks a server. Its flags describe what it asks for, not the behaviour of a
/// server.
fn asks_a_server(command: &clap::Command) -> bool {
    command.get_arguments().any(|arg| arg.get_long() == Some("url")) || command.get_subcommands().any(asks_a_server)
}

/// Returns all commands that have settings, by their full names.
fn commands() -> Vec<(String, clap::Command)> {
    let mut commands = Vec::new();
    // `man` says where to write its pages.
    let has_settings = |command: &&clap::Command| command.get_name() != "man" && !asks_a_server(command);
    for command in Cli::command().get_subcommands().filter(has_settings) {
        let name = command.get_name();
        commands.push((name.to_owned(), command.clone()));
        let inner = command.get_subcommands().map(|inner| (format!("{name} {}", inner.get_name()), inner.clone()));
        commands.extend(inner);
    }
    commands
}

/// Returns all settings of the program by flag.
fn settings_of_the_program() -> BTreeMap<String, Setting> {
    let mut settings: BTreeMap<String, Setting> = BTreeMap::new();
    for (name, command) in commands() {
        // A flag without a value requests a single action, and must not be left in an environment.
        // The file of a backup is not a setting either.
        let settings_of = |arg: &&clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
        for arg in command.get_arguments().filter(settings_of) {
            let flag = format!("--{}", arg.get_long().expect("every setting has a long flag"));
            let defaults = arg.get_default_values();
            let setting = settings.entry(flag).or_default();
            setting.variable = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            setting.default = defaults.first().map(|value| value.to_string_lossy().into_owned());
            setting.commands.insert(name.clone());
        }
    }
    settings
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    fs::read_to_string(path).expect("docs/configuration.md")
}

/// Returns the rows of the table under a heading as cells, without its two header lines.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = document.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

#[test]
fn every_setting_is_documented_with_its_variable_and_default() {
    let program = settings_of_the_program();
    let mut documented = BTreeMap::new();
    for row in table(&document(), "Settings") {
        let [flag, variable, default, commands, meaning] = row.try_into().expect("five cells");
        let flag = unquoted(&flag);
        assert!(!default.is_empty() && !meaning.is_empty(), "{flag}");
        // Where the program has no default, the document describes in words what happens.
        let has_default = program.get(&flag).is_some_and(|setting| setting.default.is_some());
        let default = has_default.then(|| unquoted(&default));
        let commands = commands.split(", ").map(str::to_owned).collect();
        let setting = Setting { variable: unquoted(&variable), default, commands };
        assert_eq!(documented.insert(flag.clone(), setting), None, "{flag} is listed twice");
    }
    assert_eq!(documented, program);
}

#[test]
fn every_setting_has_its_own_variable() {
    let settings = settings_of_the_program();
    let variables: BTreeSet<&str> = settings.values().map(|setting| setting.variable.as_str()).collect();
    assert_eq!(variables.len(), settings.len());
    for (flag, setting) in &settings {
        let usual = format!("WAYBILL_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
        assert!(setting.variable == usual || setting.variable == "DATABASE_URL", "{flag}: {}", setting.variable);
    }
}

fn help_of(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_waybill")).args(arguments).env_clear().output().expect("it runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn assert_names_every_setting(help: &str, commands: &[&str]) {
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, setting) in settings_of_the_program() {
        if !commands.iter().any(|command| setting.commands.contains(*command)) {
            continue;
        }
        let (_, about) = help.split_once(&format!(" {flag} <")).unwrap_or_else(|| panic!("{flag} in {help}"));
        let about = about.split(" --").next().unwrap_or_default();
        assert!(about.contains(&format!("[env: {}", setting.variable)), "{flag}: {about}");
        let default = setting.default.map_or("[default: ".to_owned(), |value| format!("[default: {value}]"));
        assert!(about.contains(&default) || flag == "--database-url", "{flag}: {about}");
    }
}

#[test]
fn help_names_every_setting_with_its_variable_and_default() {
    assert_names_every_setting(&help_of(&["serve", "--help"]), &["serve"]);
    assert_names_every_setting(&help_of(&["migrate", "--help"]), &["migrate"]);
    assert_names_every_setting(&help_of(&["secrets", "rotate", "--help"]), &["secrets rotate"]);
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(help_of(&["--version"]), format!("waybill {}\n", env!("CARGO_PKG_VERSION")));
}

/// Returns the source text right of a constant's `=`.
fn constant(file: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let start = format!("const {name}: ");
    let line = source.lines().find(|line| line.contains(&start)).unwrap_or_else(|| panic!("{name} in {file}"));
    let (_, value) = line.split_once(" = ").expect("a value on the same line");
    value.trim_end_matches(';').to_owned()
}

/// Returns the numbers in an expression: one, the two ends of a range, or a list. Durations are in
/// seconds.
fn numbers(expression: &str) -> Vec<f64> {
    if let Some(list) = expression.strip_prefix('[') {
        return list.trim_end_matches(']').split(", ").flat_map(numbers).collect();
    }
    if expression.contains("; ") {
        return expression.split("; ").flat_map(numbers).collect();
    }
    let (unit, inner) = match expression.strip_prefix("Duration::from_").and_then(|call| call.split_once('(')) {
        Some(("secs", inner)) => (1.0, inner.trim_end_matches(')')),
        Some(("millis", inner)) => (0.001, inner.trim_end_matches(')')),
        Some(("micros", inner)) => (0.000_001, inner.trim_end_matches(')')),
        _ => (1.0, expression),
    };
    let product = |text: &str| -> f64 {
        let factors = text.split('*').map(|factor| factor.trim().replace(['_', ','], ""));
        factors.map(|factor| factor.parse::<f64>().unwrap_or_else(|error| panic!("{factor}: {error}"))).product()
    };
    inner.split("..=").flat_map(|end| end.split(" to ")).map(|end| product(end) * unit).collect()
}

#[test]
fn fixed_limits_are_documented_with_their_values() {
    for row in table(&document(), "Fixed limits") {
        let [limit, value, place] = row.try_into().expect("three cells");
        let (file, name) =
            unquoted(&place).split_once(' ').map(|(f, n)| (f.to_owned(), n.to_owned())).expect("a place");
        let plain = value.split(" (").next().unwrap_or_default().trim_end_matches(" s");
        assert_eq!(numbers(plain), numbers(&constant(&file, &name)), "{limit}");
    }
}

#[test]
fn every_limit_of_the_domain_is_documented() {
    let source =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain/limits.rs")).expect("limits");
    let document = document();
    let names = source.lines().filter_map(|line| line.strip_prefix("pub(crate) const ")?.split(':').next());
    let missing: Vec<&str> = names.filter(|name| !document.contains(&format!("`domain/limits.rs {name}`"))).collect();
    assert_eq!(missing, [""; 0]);
}
