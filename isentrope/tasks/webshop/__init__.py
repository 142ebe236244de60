"""WebShop: a text shop in which one product has to be found, configured and bought."""
