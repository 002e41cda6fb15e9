import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
# The admin's styles: in production the web server in front has them.
application = StaticFilesHandler(get_wsgi_application())
