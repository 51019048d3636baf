"""HTTP on top of the controller: who may ask what, in which form, with what answer.

Comes in: requests of people, programs and agents. Goes out: the controller's answers and its published view as the
models of `wire`, errors as problem documents. Called by: cli `server run`, through `serve.main`.

    serve        listens, starts the controller, stops both        gate      every request passes here first
    bootstrap    files beside the ledger: admin token, endpoint    access    who asks, and what they may
    app          the FastAPI application                           hub       what handlers work with
    jobs  submit  logs  cluster  nodes  tokens  agents             the routes
    render*      view -> wire models                               paging    live and ended jobs as one list
"""
