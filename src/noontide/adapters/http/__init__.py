"""HTTP targets: one request per attempt, to an address that was checked, with secrets that stay where they belong.

executor     attempts in, ends out
outgoing     invitation -> request: headers, body, credentials
redirects    which answers lead on, and what they may take along
verdicts     status or error -> how the attempt ended
capture      the body of a response, within its limit
connections  connections per host, their limits and counters
network      names -> addresses -> the guard -> a connection to exactly that address
addresses    the guard: which addresses are nobody's target
secrets      values by name, for the tenants and hosts they were registered for
signing      signatures of requests (Standard Webhooks)
completion   the URL that a target calls when it is done later
"""

from noontide.adapters.http.completion import check_completion_token, completion_app, make_completion_token
from noontide.adapters.http.executor import HttpExecutor
from noontide.adapters.http.secrets import SecretRule, SecretStore
from noontide.adapters.http.settings import HttpSettings

__all__ = [
    "HttpExecutor",
    "HttpSettings",
    "SecretRule",
    "SecretStore",
    "check_completion_token",
    "completion_app",
    "make_completion_token",
]
