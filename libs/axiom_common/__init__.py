"""What all services share: names, shapes, decisions, drivers and the runtime around them."""
