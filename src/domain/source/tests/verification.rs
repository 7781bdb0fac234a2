//! Every scheme: right, wrong, altered, missing, stale and rotated.

use serde_json::json;

use super::examples::*;
use super::*;
use crate::domain::source::hmac::{Algorithm, Encoding};
use crate::domain::source::secret::BASE64;

#[test]
fn the_published_examples_are_accepted() {
    for example in all() {
        let checked = example.check(&[example.secret], &example.headers(), example.body, example.now);
        assert_eq!(checked, Ok(()), "{}", example.verify);
    }
    verify(&json!({"scheme": "none"})).check(&[], &webhook(&[], b"anything"), 0.0).unwrap();
}

#[test]
fn another_secret_is_refused_and_both_are_accepted_during_a_rotation() {
    for example in all() {
        let check = |secrets: &[&str]| example.check(secrets, &example.headers(), example.body, example.now);
        let other = another_secret(&example);
        assert_eq!(check(&[other]), Err(Rejection::Mismatch), "{}", example.verify);
        assert_eq!(check(&[]), Err(Rejection::Mismatch), "{}", example.verify);
        assert_eq!(check(&[example.secret, other]), Ok(()), "{}", example.verify);
        assert_eq!(check(&[other, example.secret]), Ok(()), "{}", example.verify);
    }
}

#[test]
fn a_body_with_one_other_byte_is_refused() {
    for example in all().iter().filter(|example| is_signed(example)) {
        let check = |body: &[u8]| example.check(&[example.secret], &example.headers(), body, example.now);
        for at in 0..example.body.len() {
            let mut body = example.body.to_vec();
            body[at] ^= 1;
            assert_eq!(check(&body), Err(Rejection::Mismatch), "{} at {at}", example.verify);
        }
        for body in [&example.body[1..], &[example.body, b"\n"].concat(), b""] {
            assert_eq!(check(body), Err(Rejection::Mismatch), "{}", example.verify);
        }
    }
}

#[test]
fn a_signature_with_one_other_character_is_refused() {
    for example in all() {
        let (index, (name, value)) =
            example.headers.iter().enumerate().find(|(_, (name, _))| *name == example.proof).unwrap();
        for at in value.len() - 8..value.len() {
            let mut value = value.clone();
            let other = if &value[at..=at] == "a" { "b" } else { "a" };
            value.replace_range(at..=at, other);
            let mut headers = example.headers();
            headers[index] = (name, &value);
            let checked = example.check(&[example.secret], &headers, example.body, example.now);
            assert!(checked.is_err(), "{} {value}", example.verify);
        }
    }
}

#[test]
fn a_missing_a_repeated_and_an_overlong_header_are_refused() {
    let overlong = "a".repeat(5_000);
    for example in all() {
        for (index, (name, value)) in example.headers.iter().enumerate() {
            let check = |headers: &[(&str, &str)]| {
                example.check(&[example.secret], headers, example.body, example.now).unwrap_err()
            };
            let mut headers = example.headers();
            headers[index] = (name, &overlong);
            assert!(matches!(check(&headers), Rejection::Malformed(_)), "{}", example.verify);
            headers[index] = (name, value);
            headers.push((name, value));
            assert!(matches!(check(&headers), Rejection::Malformed(_)), "{}", example.verify);
            headers.retain(|(other, _)| other != name);
            assert!(matches!(check(&headers), Rejection::Missing(_)), "{}", example.verify);
        }
    }
}

#[test]
fn a_timestamp_may_be_as_far_away_as_the_tolerance_says() {
    for mut example in [standard(), stripe(), slack()] {
        for (tolerance, limit) in [(Value::Null, 300.0), (json!(5), 5.0), (json!(0.5 + 1.0), 1.5)] {
            example.verify["tolerance_seconds"] = tolerance;
            let check = |now: f64| {
                example.check(&[example.secret], &example.headers(), example.body, now).map_err(|e| e.as_str())
            };
            for away in [limit, -limit] {
                assert_eq!(check(example.now + away), Ok(()), "{} {away}", example.verify);
                assert_eq!(check(example.now + away * 1.01), Err("stale"), "{} {away}", example.verify);
            }
        }
    }
}

#[test]
fn a_timestamp_that_is_no_number_is_refused() {
    for example in [standard(), slack()] {
        for bad in ["", "-1", "+1614265330", "1614265330.5", "0x1", "99999999999999999999", " 1614265330"] {
            let headers: Vec<(&str, &str)> = example
                .headers()
                .into_iter()
                .map(
                    |(name, value)| if name.to_lowercase().contains("timestamp") { (name, bad) } else { (name, value) },
                )
                .collect();
            let checked = example.check(&[example.secret], &headers, example.body, example.now);
            assert!(matches!(checked, Err(Rejection::Malformed(_))), "{bad:?}");
        }
    }
}

#[test]
fn one_of_several_signatures_is_enough_and_other_kinds_are_ignored() {
    let check = |example: &Example, index: usize, value: &str| {
        let mut headers = example.headers();
        headers[index].1 = value;
        example.check(&[example.secret], &headers, example.body, example.now).map_err(|error| error.as_str())
    };
    let standard = standard();
    let right = standard.headers[2].1.as_str();
    assert_eq!(check(&standard, 2, &format!("v1a,x v1,AAAA {right}")), Ok(()));
    assert_eq!(check(&standard, 2, &right.replace("v1,", "v1a,")), Err("mismatch"));
    let stripe = stripe();
    let right = stripe.headers[0].1.split_once("v1=").unwrap().1;
    let wrong = "0".repeat(64);
    assert_eq!(check(&stripe, 0, &format!("t=1492774577, v1={wrong},v1={right},v0={wrong}")), Ok(()));
    assert_eq!(check(&stripe, 0, &format!("t=1492774577,v0={right}")), Err("mismatch"));
    assert_eq!(check(&stripe, 0, &format!("t=1,t=1492774577,v1={right}")), Err("malformed"));
    assert_eq!(check(&stripe, 0, &format!("v1={right}")), Err("malformed"));
}

#[test]
fn every_algorithm_and_encoding_is_supported() {
    use base64::Engine;
    for algorithm in [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512] {
        for encoding in [Encoding::Hex, Encoding::Base64] {
            let signature = algorithm.sign(b"key", &[b"body"]);
            let text = match encoding {
                Encoding::Hex => hex(algorithm, b"key", &[b"body"]).to_uppercase(),
                Encoding::Base64 => BASE64.encode(signature),
            };
            let verify = verify(&json!({
                "scheme": "hmac", "header": "X-Sign", "algorithm": algorithm.as_str(), "encoding": encoding.as_str(),
            }));
            let secret = verify.parse_secret("key").unwrap();
            verify.check(&[&secret], &webhook(&[("x-sign", &text)], b"body"), 0.0).unwrap();
        }
    }
}
