//! `/openapi.yaml`, `/openapi.json` and `/docs`: the contract, for machines and for people. The binary contains
//! everything that the page needs, and the content security policy forbids requests to other hosts.

use std::sync::LazyLock;

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};

use super::openapi_json::to_json;
use super::page::{NO_SNIFF, html};
use super::query::expect_no_query;
use super::sliced_body::SlicedBody;
use crate::error::Error;

pub const OPENAPI: &str = include_str!("../../openapi.yaml");

const OPENAPI_YAML: Bytes = Bytes::from_static(OPENAPI.as_bytes());

/// The contract as JSON, converted when it is first requested.
static OPENAPI_JSON: LazyLock<Result<Bytes, String>> = LazyLock::new(|| to_json(OPENAPI).map(Bytes::from));

/// The script of the documentation page. It has several megabytes and is kept once: responses to clients that read
/// slowly share it.
static SCRIPT: LazyLock<Option<Bytes>> =
    LazyLock::new(|| scalar_api_reference::get_asset("scalar.js").map(Bytes::from));

/// The documentation page. Its settings are data attributes, because the policy forbids inline scripts.
const PAGE: &str = include_str!("docs.html");

/// Allows resources of this server only. Inline styles are allowed because the viewer inserts its
/// style sheet into the page, and `data:` because it embeds its icons and fonts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /openapi.yaml`: returns the contract.
pub(crate) async fn get_openapi_yaml(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok()
        .content_type("application/yaml")
        .insert_header(NO_SNIFF)
        .body(SlicedBody::shared(OPENAPI_YAML)))
}

/// `GET /openapi.json`: returns the contract as JSON.
pub(crate) async fn get_openapi_json(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let document = OPENAPI_JSON.as_ref().map_err(|error| Error::Internal(error.clone()))?;
    Ok(HttpResponse::Ok()
        .content_type("application/json")
        .insert_header(NO_SNIFF)
        .body(SlicedBody::shared(document.clone())))
}

/// `GET /docs`: returns the documentation page.
pub(crate) async fn get_docs(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(html(&request, POLICY).body(PAGE))
}

/// `GET /docs/scalar.js`: returns the script of the documentation page.
pub(crate) async fn get_docs_script(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let script = SCRIPT.clone().ok_or_else(|| Error::Internal("the documentation's script is missing".into()))?;
    Ok(HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header(NO_SNIFF)
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(SlicedBody::shared(script)))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use actix_web::body::MessageBody as _;
    use actix_web::test::TestRequest;

    use super::*;
    use crate::http::sliced_body::SLICE;

    async fn first_piece(response: HttpResponse) -> Bytes {
        let mut body = response.into_body();
        poll_fn(|context| Pin::new(&mut body).poll_next(context)).await.unwrap().unwrap()
    }

    #[actix_web::test]
    async fn large_documents_are_kept_once_and_sent_in_slices() {
        let request = || TestRequest::get().to_http_request();
        let script = async || first_piece(get_docs_script(request()).await.unwrap()).await;
        let yaml = async || first_piece(get_openapi_yaml(request()).await.unwrap()).await;
        let json = async || first_piece(get_openapi_json(request()).await.unwrap()).await;
        for (one, another) in
            [(script().await, script().await), (yaml().await, yaml().await), (json().await, json().await)]
        {
            assert_eq!((one.as_ptr(), one.len()), (another.as_ptr(), SLICE));
        }
    }
}
