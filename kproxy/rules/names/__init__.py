"""Name maps from the client side to the broker side and back, composed of rename and prefix rules.

Imports: protocol, base. Entry points: `Namespace`, `Layer`, `NameMaps`.
"""
