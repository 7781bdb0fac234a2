use actix_web::{App, test, web};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::http::sliced_body::SlicedBody;

const IDLE: Duration = Duration::from_millis(20);

/// A request keeps its connection open for several times the timeout. Then the connection is closed, without a word
/// of the client.
#[actix_web::test]
async fn a_connection_is_closed_when_it_has_been_without_requests_for_long_enough() {
    let slow = || async {
        tokio::time::sleep(IDLE * 5).await;
        "done"
    };
    let app = Rc::new(test::init_service(App::new().route("/slow", web::get().to(slow))).await);
    let timeouts = Timeouts { idle: IDLE, ..Timeouts::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let served = ClientStream::plain(listener.accept().await.unwrap().0);
    let serving = actix_web::rt::spawn(serve(served, None, app, timeouts, std::future::pending()));
    let (mut requests, connection) = h2::client::handshake(socket).await.unwrap();
    let client = actix_web::rt::spawn(connection);
    let request = http::Request::get("http://localhost/slow").body(()).unwrap();
    let response = requests.send_request(request, true).unwrap().0.await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    serving.await.unwrap().unwrap();
    client.await.unwrap().unwrap();
    assert!(requests.ready().await.is_err(), "the connection takes no more requests");
}

const WRITE: Duration = Duration::from_millis(200);

/// Serves an application with a short timeout for writes. Returns a client whose responses have this window.
async fn serve_with_window(window: u32) -> h2::client::SendRequest<Bytes> {
    let large = || async { HttpResponse::Ok().body(SlicedBody::shared(Bytes::from(vec![0; 1024 * 1024]))) };
    let slow = || async {
        tokio::time::sleep(WRITE * 3).await;
        "done"
    };
    let app = App::new().route("/large", web::get().to(large)).route("/slow", web::get().to(slow));
    let app = Rc::new(test::init_service(app).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let served = ClientStream::plain(listener.accept().await.unwrap().0);
    let timeouts = Timeouts { write: WRITE, ..Timeouts::default() };
    actix_web::rt::spawn(serve(served, None, app, timeouts, std::future::pending()));
    let mut builder = h2::client::Builder::new();
    let (requests, connection) = builder.initial_window_size(window).handshake(socket).await.unwrap();
    actix_web::rt::spawn(connection);
    requests
}

fn get(requests: &mut h2::client::SendRequest<Bytes>, path: &str) -> h2::client::ResponseFuture {
    let request = http::Request::get(format!("http://localhost{path}")).body(()).unwrap();
    requests.send_request(request, true).unwrap().0
}

#[actix_web::test]
async fn a_response_of_which_the_client_accepts_no_bytes_is_reset_and_others_go_on() {
    let mut requests = serve_with_window(1024).await;
    let mut stuck = get(&mut requests, "/large").await.unwrap().into_body();
    assert_eq!(stuck.data().await.unwrap().unwrap().len(), 1024);
    let error = stuck.data().await.unwrap().unwrap_err();
    assert_eq!((error.is_reset(), error.reason()), (true, Some(h2::Reason::CANCEL)));
    // Its handler takes longer than a client may take.
    let mut body = get(&mut requests, "/slow").await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "done");
}

#[actix_web::test]
async fn the_deadline_of_a_response_begins_anew_with_each_progress() {
    let mut watched = Watched {
        request: Box::pin(std::future::pending::<()>()),
        sending: Rc::default(),
        deadline: None,
        timeout: Duration::from_secs(3600),
    };
    let mut steps = Vec::new();
    for (asked, waits_for_client) in [(0, false), (0, true), (1, true), (2, false), (3, true)] {
        watched.sending.asked.set(asked);
        watched.sending.waits_for_client.set(waits_for_client);
        assert!(futures_util::poll!(&mut watched).is_pending());
        steps.push(watched.deadline.as_ref().map(|(asked, _)| *asked));
    }
    assert_eq!(steps, [None, Some(0), Some(1), None, Some(3)]);
}
