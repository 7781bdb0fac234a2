//! Extracts the [`Scope`] of a request.

use std::future::{Ready, ready};

use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest, dev};

use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;

impl FromRequest for Scope {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let engine = request.app_data::<Data<Engine>>();
        ready(engine.map(|engine| engine.scope()).ok_or_else(|| Error::Internal("the server has no engine".into())))
    }
}
