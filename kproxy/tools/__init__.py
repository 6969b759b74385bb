"""Programs over recordings and rules: verify, replay and rehearse."""
