//! Bodies of requests: from flags, or from a file that is sent as it is.

use std::fs::File;
use std::io::{self, Read};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cli::error::CliError;

/// The largest file that is read, in bytes: more than the server takes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the content of a file, or of standard input for `-`.
pub(super) fn read_text(name: &str) -> Result<String, CliError> {
    let failed = |error: io::Error| CliError::Failed(format!("{name}: {error}"));
    let mut text = String::new();
    let mut limited: Box<dyn Read> = match name {
        "-" => Box::new(io::stdin().lock().take(MAX_FILE_BYTES + 1)),
        path => Box::new(File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1)),
    };
    limited.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(CliError::Failed(format!("{name} is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// Returns a secret that a file has, without the line break at its end.
pub(super) fn read_secret(name: &str) -> Result<String, CliError> {
    let text = read_text(name)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns the JSON document of a file, byte for byte.
pub(super) fn read_json(name: &str) -> Result<Box<RawValue>, CliError> {
    let text = read_text(name)?;
    serde_json::from_str(&text).map_err(|error| CliError::Usage(format!("{name} is not JSON: {error}")))
}

/// Returns the body: the file as it is, or the fields that flags have set.
pub(super) fn body(from: Option<&str>, fields: Map<String, Value>) -> Result<String, CliError> {
    match from {
        Some(name) if fields.is_empty() => Ok(read_json(name)?.get().to_owned()),
        Some(_) => {
            let names = fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(CliError::Usage(format!("--from has the whole body: put {names} there, and leave out the flags")))
        }
        None if fields.is_empty() => Err(CliError::Usage("nothing to send: set a field, or --from FILE".to_owned())),
        None => Ok(Value::Object(fields).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_file_is_sent_byte_for_byte() {
        let file = file("{\"rate\": 1.10, \"n\":9007199254740993}\n");
        let name = file.path().to_str().unwrap();
        assert_eq!(body(Some(name), Map::new()).unwrap(), "{\"rate\": 1.10, \"n\":9007199254740993}");
    }

    #[test]
    fn a_file_and_flags_exclude_each_other_and_one_is_needed() {
        let fields: Map<String, Value> = json!({"name": "x"}).as_object().unwrap().clone();
        assert_eq!(body(None, fields.clone()).unwrap(), "{\"name\":\"x\"}");
        assert!(matches!(body(Some("-"), fields), Err(CliError::Usage(text)) if text.contains("put name there")));
        assert!(matches!(body(None, Map::new()), Err(CliError::Usage(_))));
        let broken = file("{");
        assert!(
            matches!(body(broken.path().to_str(), Map::new()), Err(CliError::Usage(text)) if text.contains("not JSON"))
        );
    }

    #[test]
    fn a_secret_ends_before_the_line_break() {
        let file = file("whsec_abc \n");
        assert_eq!(read_secret(file.path().to_str().unwrap()).unwrap(), "whsec_abc ");
    }
}
