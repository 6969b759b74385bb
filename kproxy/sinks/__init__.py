"""Where what happened goes: metrics now; audit and captures have their place here."""
