//! The files that pages need, inside the binary.
//!
//! The name of a file contains a hash of its content, so browsers may keep it for ever, and a new version of the server
//! has new names.

use std::sync::LazyLock;

use actix_web::http::header;
use actix_web::web::{Bytes, Path};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::http::code::Code;
use crate::http::page::NO_SNIFF;
use crate::http::problem::Problem;
use crate::http::query::expect_no_query;

/// The number of bytes of the hash in a name.
const HASH_BYTES: usize = 6;

struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
    /// Its name with the hash.
    hashed_name: String,
}

static ASSETS: LazyLock<[Asset; 7]> = LazyLock::new(|| {
    [
        asset("plain.css", "text/css; charset=utf-8", include_str!("assets/plain.css")),
        asset("dashboard.css", "text/css; charset=utf-8", include_str!("assets/dashboard.css")),
        asset("dashboard.js", "text/javascript; charset=utf-8", include_str!("assets/dashboard.js")),
        asset("filter.js", "text/javascript; charset=utf-8", include_str!("assets/filter.js")),
        asset("forms.js", "text/javascript; charset=utf-8", include_str!("assets/forms.js")),
        asset("theme.js", "text/javascript; charset=utf-8", include_str!("assets/theme.js")),
        asset("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ]
});

fn asset(name: &'static str, content_type: &'static str, text: &'static str) -> Asset {
    let mut hash = String::new();
    for byte in Sha256::digest(text.as_bytes()).iter().take(HASH_BYTES) {
        hash.push_str(&format!("{byte:02x}"));
    }
    let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
    Asset { name, content_type, text, hashed_name: format!("{stem}.{hash}.{extension}") }
}

/// Returns the path of a file. Its name must be in the table.
pub(super) fn path_of(name: &str) -> String {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    format!("/assets/{}", asset.map_or(name, |asset| &asset.hashed_name))
}

/// `GET /assets/{name}`: returns a file.
pub(crate) async fn get_asset(request: HttpRequest, name: Path<String>) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let Some(asset) = ASSETS.iter().find(|asset| asset.hashed_name == *name) else {
        return Ok(Problem::new(Code::RouteNotFound, format!("there is no {}", request.path())).respond());
    };
    Ok(HttpResponse::Ok()
        .content_type(asset.content_type)
        .insert_header(NO_SNIFF)
        .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .body(Bytes::from_static(asset.text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_changes_with_its_content() {
        let (one, another) = (asset("a.js", "text/javascript", "1"), asset("a.js", "text/javascript", "2"));
        assert_ne!(one.hashed_name, another.hashed_name);
        let parts: Vec<&str> = one.hashed_name.split('.').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2]), ("a", 2 * HASH_BYTES, "js"));
        assert!(path_of("plain.css").starts_with("/assets/plain."));
    }
}
