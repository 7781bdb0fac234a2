//! The parameters of `GET /stats` and `GET /stats/history`.

use super::{history, servers};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_parameter_is_refused_by_name() {
    let [app] = servers().await;
    let cases: [(&str, &[&str]); 17] = [
        ("metric=sold", &["metric"]),
        ("metric=", &["metric"]),
        ("metric=published,sold", &["metric"]),
        ("tag=", &["tag"]),
        ("tag=a,b", &["tag"]),
        ("from=yesterday", &["from"]),
        ("from=24", &["from"]),
        ("from=2099-01-01T00:00:00Z", &["from"]),
        ("from=1h&to=2h", &["from"]),
        ("from=366d", &["from"]),
        ("to=soon", &["to"]),
        ("step=2m", &["step"]),
        ("step=60", &["step"]),
        ("from=2d&step=1m", &["step"]),
        ("from=8d&step=30m", &["step"]),
        ("since=1h", &["since"]),
        ("metric=sold&from=x&step=y&colour=red", &["metric", "from", "step", "colour"]),
    ];
    for (query, fields) in cases {
        app.get(&format!("/stats/history?{query}")).await.names(fields);
    }
    for (query, field) in [("tag=", "tag"), ("tag=a%2Cb", "tag"), ("tags=a", "tags")] {
        app.get(&format!("/stats?{query}")).await.names(&[field]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_absolute_or_some_time_ago() {
    let [app] = servers().await;
    let at = |seconds| (app.now() - chrono::TimeDelta::seconds(seconds)).to_rfc3339();
    let absolute = format!("metric=published&step=5m&from={}&to={}", at(7_200), at(3_600));
    let relative = "metric=published&step=5m&from=2h&to=1h";
    assert_eq!(history(&app, &absolute).await, history(&app, relative).await);
    assert_eq!(history(&app, relative).await["times"].as_array().map(Vec::len), Some(13));
}
