//! The commands that the README and the documents show, read by the program's own parser.

use std::fs;
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;
use waybill::config::Cli;

/// A command, and where it is shown.
#[derive(Debug)]
struct Shown {
    place: String,
    words: Vec<String>,
    /// Whether it is named in a sentence, where it may lack arguments.
    is_inline: bool,
}

/// Returns the README and all documents but the decisions, which are about the past.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("a file").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: &Path| fs::read_to_string(path).expect("a page");
    let mut documents: Vec<_> = pages.map(|path| (path.display().to_string(), read(&path))).collect();
    documents.push(("README.md".to_owned(), read(&root.join("README.md"))));
    documents
}

/// Splits a line of a shell into commands of words. What is quoted is one word; operators and comments end a command.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    let end_word = |word: &mut Option<String>, words: &mut Vec<String>| words.extend(word.take());
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|other| *other != c));
            }
            '$' if chars.peek() == Some(&'(') => word = None,
            '#' if word.is_none() => break,
            '|' | ';' | '&' | '(' | ')' | '>' => {
                end_word(&mut word, &mut words);
                commands.push(std::mem::take(&mut words));
                // A file that is written to is no command.
                words.extend((c == '>').then(|| c.to_string()));
            }
            c if c.is_whitespace() => end_word(&mut word, &mut words),
            c => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut word, &mut words);
    commands.push(words);
    commands
}

/// Returns the arguments of `waybill`, if that is the command, after variables that are set for it.
fn arguments_of(words: Vec<String>) -> Option<Vec<String>> {
    let mut words = words.into_iter().skip_while(|word| word.contains('=')).peekable();
    let is_waybill = words.peek().is_some_and(|word| word == "waybill" || word.ends_with("/waybill"));
    is_waybill.then(|| std::iter::once("waybill".to_owned()).chain(words.skip(1).filter_map(filled)).collect())
}

/// Returns a word with a value in the place of what a reader fills in.
fn filled(word: String) -> Option<String> {
    match word.as_str() {
        "…" => None,
        "ID" | "N" => Some("1".to_owned()),
        _ => Some(word),
    }
}

fn shown_commands() -> Vec<Shown> {
    let mut shown = Vec::new();
    for (name, text) in documents() {
        let text = text.replace("\\\n", " ").replace("<id>", "ID");
        let mut block: Option<bool> = None;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{name}, about line {}", number + 1);
            let mut add = |line: &str, is_inline| {
                for words in commands_of(line).into_iter().filter_map(arguments_of) {
                    shown.push(Shown { place: place.clone(), words, is_inline });
                }
            };
            match (line.trim_start().strip_prefix("```"), block) {
                (Some(language), None) => block = Some(language == "sh"),
                (Some(_), Some(_)) => block = None,
                (None, Some(true)) => add(line, false),
                (None, Some(false)) => {}
                (None, None) => {
                    line.split('`').skip(1).step_by(2).for_each(|code| add(code, true));
                }
            }
        }
    }
    shown
}

#[test]
fn every_command_of_the_documents_is_one_that_the_program_takes() {
    let shown = shown_commands();
    assert!(shown.len() > 100, "{}", shown.len());
    let mut refused = Vec::new();
    for Shown { place, words, is_inline } in shown {
        let Err(error) = Cli::try_parse_from(&words) else { continue };
        let is_fine = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_inline,
            // A flag may be named without its value.
            ErrorKind::InvalidValue => is_inline && words.last().is_some_and(|word| word.starts_with("--")),
            _ => false,
        };
        if !is_fine {
            refused.push(format!("{place}: {}: {error}", words.join(" ")));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// These need an id, a filter or `--all`, which the parser does not know. What a runbook says is typed as it stands.
#[test]
fn the_runbook_shows_no_action_without_what_it_acts_on() {
    for Shown { place, words, .. } in shown_commands() {
        let acts = ["retry", "cancel", "reset", "replay"].contains(&words.last().map_or("", String::as_str));
        let is_named = !place.contains("operations.md") || words.get(1).is_some_and(|noun| noun == "operations");
        assert!(!acts || is_named, "{place}: {}", words.join(" "));
    }
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
    let found = |line: &str| commands_of(line).into_iter().filter_map(arguments_of).collect::<Vec<_>>();
    assert_eq!(found("A=1 waybill tags # waybill no"), [["waybill", "tags"]]);
    assert_eq!(
        found("key=$(waybill keys list) | target/release/waybill top > bin/waybill"),
        [vec!["waybill", "keys", "list"], vec!["waybill", "top"],]
    );
    assert_eq!(found("waybill publish --title 'a | b'"), [["waybill", "publish", "--title", "a | b"]]);
    assert_eq!(found("echo waybill"), Vec::<Vec<String>>::new());
}
