"""Request and response scenarios that Tessera and a real Triton both answer."""
