//! Which request is whose. The table is compared with the document by a test, in both directions.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request};

use crate::call::Call;
use crate::error::Error;
use crate::reply::{self, Reply};
use crate::shared::Shared;
use crate::{document, domains, events, exec, logs, making, metrics, web};

/// What answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Ping,
    Document,
    Schema,
    Metrics,
    Events,
    Jobs,
    Job,
    List,
    Create,
    Inspect,
    Remove,
    Statistics,
    Start,
    Stop,
    Kill,
    Pause,
    Resume,
    Logs,
    Snapshot,
    Exec,
    Attach,
    Console,
    Page,
}

/// Methods and paths, of which `{...}` is a segment that is not empty.
const ROUTES: [(Method, &str, Action); 23] = [
    (Method::GET, "/", Action::Page),
    (Method::GET, "/v1/ping", Action::Ping),
    (Method::GET, "/v1/openapi.json", Action::Document),
    (Method::GET, "/v1/spec.schema.json", Action::Schema),
    (Method::GET, "/metrics", Action::Metrics),
    (Method::GET, "/v1/events", Action::Events),
    (Method::GET, "/v1/jobs", Action::Jobs),
    (Method::GET, "/v1/jobs/{id}", Action::Job),
    (Method::GET, "/v1/domains", Action::List),
    (Method::POST, "/v1/domains", Action::Create),
    (Method::GET, "/v1/domains/{name}", Action::Inspect),
    (Method::DELETE, "/v1/domains/{name}", Action::Remove),
    (Method::GET, "/v1/domains/{name}/statistics", Action::Statistics),
    (Method::POST, "/v1/domains/{name}/start", Action::Start),
    (Method::POST, "/v1/domains/{name}/stop", Action::Stop),
    (Method::POST, "/v1/domains/{name}/kill", Action::Kill),
    (Method::POST, "/v1/domains/{name}/pause", Action::Pause),
    (Method::POST, "/v1/domains/{name}/resume", Action::Resume),
    (Method::GET, "/v1/domains/{name}/logs", Action::Logs),
    (Method::POST, "/v1/domains/{name}/snapshot", Action::Snapshot),
    (Method::POST, "/v1/domains/{name}/exec", Action::Exec),
    (Method::POST, "/v1/domains/{name}/attach", Action::Attach),
    (Method::POST, "/v1/domains/{name}/console", Action::Console),
];

/// What a path has in the place of `{...}`, if it is of this form; nothing if there is none.
fn fits<'a>(form: &str, path: &'a str) -> Option<&'a str> {
    let (form, path) = (form.split('/'), path.split('/'));
    let mut parameter = "";
    if form.clone().count() != path.clone().count() {
        return None;
    }
    for (form, segment) in form.zip(path) {
        match form.starts_with('{') {
            true if !segment.is_empty() => parameter = segment,
            false if form == segment => {}
            _ => return None,
        }
    }
    Some(parameter)
}

/// Which action a request is for, and what stands in its path.
fn find(method: &Method, path: &str) -> Result<(Action, String), Error> {
    let fitting = ROUTES.iter().filter_map(|(of, form, action)| {
        let parameter = fits(form, path)?;
        Some((of, *action, parameter))
    });
    let fitting: Vec<_> = fitting.collect();
    match fitting.iter().find(|(of, ..)| *of == method) {
        Some((_, action, parameter)) => Ok((*action, (*parameter).to_owned())),
        None if fitting.is_empty() => Err(Error::NoPath(path.to_owned())),
        None => Err(Error::Method),
    }
}

/// Answers a request, whatever it is.
pub async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Reply {
    let answered = match find(request.method(), request.uri().path()) {
        Ok((action, parameter)) => act(action, Call { shared, parameter, request }).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| reply::problem(&error))
}

async fn act(action: Action, call: Call) -> Result<Reply, Error> {
    match action {
        Action::Ping => document::ping(call).await,
        Action::Document => document::openapi(call).await,
        Action::Schema => document::schema(call).await,
        Action::Metrics => metrics::metrics(call).await,
        Action::Events => events::events(call).await,
        Action::Jobs => making::jobs(call).await,
        Action::Job => making::job(call).await,
        Action::List => domains::list(call).await,
        Action::Create => making::create(call).await,
        Action::Inspect => domains::inspect(call).await,
        Action::Remove => domains::remove(call).await,
        Action::Statistics => domains::statistics(call).await,
        Action::Start => making::start(call).await,
        Action::Stop => making::stop(call).await,
        Action::Kill => domains::kill(call).await,
        Action::Pause => domains::pause(call).await,
        Action::Resume => domains::resume(call).await,
        Action::Logs => logs::logs(call).await,
        Action::Snapshot => making::snapshot(call).await,
        Action::Exec => exec::exec(call).await,
        Action::Attach => exec::attach(call).await,
        Action::Console => exec::console(call).await,
        Action::Page => web::page(call).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document = serde_json::to_value(document::document()).expect("it is JSON");
        let version = document["openapi"].as_str().expect("it has a version");
        assert!(version.starts_with("3.1."), "{version}");
        let paths = document["paths"].as_object().expect("it has paths");
        let documented: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().expect("it has methods");
                methods.keys().map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let served: BTreeSet<(String, String)> = ROUTES
            .iter()
            .map(|(method, path, _)| (method.to_string(), (*path).to_owned()))
            .collect();
        assert_eq!(served.len(), ROUTES.len(), "each is there once");
        assert_eq!(documented, served);
    }

    #[test]
    fn requests_find_their_action() {
        let check = |method: Method, path: &str, expected: Option<(Action, &str)>| {
            let found = find(&method, path).ok();
            let found = found.as_ref().map(|(action, parameter)| (*action, parameter.as_str()));
            assert_eq!(found, expected, "{method} {path}");
        };
        check(Method::GET, "/v1/domains", Some((Action::List, "")));
        check(Method::POST, "/v1/domains", Some((Action::Create, "")));
        check(Method::GET, "/v1/domains/web", Some((Action::Inspect, "web")));
        check(Method::POST, "/v1/domains/web/stop", Some((Action::Stop, "web")));
        check(Method::GET, "/", Some((Action::Page, "")));
        check(Method::GET, "/v1/jobs/7", Some((Action::Job, "7")));
        for path in ["", "//", "/v1", "/v1/domains/", "/v1/domains//stop", "/v1/domains/a/b/c"] {
            check(Method::GET, path, None);
        }
        assert!(matches!(find(&Method::DELETE, "/v1/domains"), Err(Error::Method)));
        assert!(matches!(find(&Method::GET, "/v1/domain"), Err(Error::NoPath(_))));
    }
}
