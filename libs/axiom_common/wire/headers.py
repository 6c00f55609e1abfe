"""Every HTTP header that Axiom reads or writes."""

from __future__ import annotations

ENGINE = "x-axiom-engine"
"""Response: the engine that served."""
DECISION = "x-axiom-decision-id"
"""Response: id of the routing decision, for `axiom why`."""
PROFILE = "x-axiom-profile"
"""Request: the profile to decide with, where settings allow it."""
REQUEST_ID = "x-request-id"
"""Both ways: the client's id of a request; made where it is missing."""
RETRY_AFTER = "retry-after"
"""Response: seconds until a refused request may do better."""
TRACEPARENT = "traceparent"
"""Request, passed on to the engine: W3C trace context."""
TRACESTATE = "tracestate"
"""Request, passed on to the engine: W3C trace context."""
